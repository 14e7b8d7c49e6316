"""
Answers of a Prometheus, or of a proxy before it, that are none: what happened, why, and what to do.

What comes in: address, status and text of an answer. What goes out: an error.

The rule: the fix is for the one that answered. A proxy answers with pages, and Prometheus with JSON.
"""

from exporter.base.http_client import AskError, Kind
from exporter.base.problem import Problem

URL_VARIABLE = "GPUSTEWARD_PROMETHEUS"
TOKEN_VARIABLE = "GPUSTEWARD_PROMETHEUS_TOKEN"  # noqa: S105  (the name of a variable)
PROMETHEUS = Kind(
    name="Prometheus",
    noun="Prometheus",
    address=f"set --prometheus or the variable {URL_VARIABLE} to an address such as http://prometheus.monitoring:9090",
    reach=f"set --prometheus or the variable {URL_VARIABLE} to a Prometheus; kubectl port-forward gives it an address",
    deadline=180.0,  # its own default for a query is two minutes
    longest=256 << 20,
)
LOGIN = (401, 403)
TOO_LARGE = (422, 503)
"""Statuses with which servers say that a query needs too many samples."""
TOO_MANY, INTERNAL = 429, 500
_LOGIN = f"write name and password into the URL, or set the variable {TOKEN_VARIABLE} to a bearer token"
_BEHIND = "ask Prometheus at its own address, such as by kubectl port-forward"
_SMALLER = "ask about a shorter time, or raise --query.max-samples and --query.timeout of that Prometheus"
_AMBIGUOUS = ("found duplicate series", "many-to-many matching", "many-to-one matching")


class HistoryError(Problem):
    """Prometheus cannot answer; the message says why."""


class TooMuchError(HistoryError):
    """The query needs more samples or time than the server allows, so a smaller one may be answered."""


def of_page(url: str, status: int) -> Problem:
    """Make the error for an answer that is no JSON of Prometheus: a page of a proxy, or of another program."""
    what = f"{url} answers with status {status}"
    match status:
        case 401 | 403:
            cause = "it needs a login" if status == LOGIN[0] else "this login may not ask it"
            return HistoryError(f"{url} refuses the question with status {status}", cause=cause, fix=_LOGIN)
        case 404:
            return AskError(
                f"{url}/api/v1/query is not there (status {status})",
                cause="another program answers, or Prometheus is behind a path",
                fix="write the path into the URL too, such as http://host:9090/prometheus (its --web.external-url)",
            )
        case 200:
            return AskError(
                f"{url} answers something else than an answer to a query",
                cause="a login page answers, or this is not the address of a Prometheus",
                fix=f"{_LOGIN}; or {_BEHIND}",
            )
        case 301 | 302 | 303 | 307 | 308:
            cause = "a login page stands before it, or it has another address"
            return AskError(what, cause=cause, fix=f"{_LOGIN}; or {_BEHIND}")
        case 429:
            return _too_many(url, "")
        case 504:
            fix = f"ask about a shorter time, raise the timeout of the proxy, or {_BEHIND}"
            return TooMuchError(what, cause="a proxy before Prometheus waits for a shorter time than it takes", fix=fix)
        case 503:
            cause = "a proxy reaches no Prometheus, or Prometheus starts or has too much to do"
            fix = f"check that the Prometheus behind the proxy is ready (/-/ready), or {_BEHIND}"
            return TooMuchError(what, cause=cause, fix=fix)
        case 502:
            fix = f"check that the Prometheus behind the proxy runs, or {_BEHIND}"
            return AskError(what, cause="a proxy reaches no Prometheus", fix=fix)
        case _ if status >= INTERNAL:
            fix = f"read the log of the program that answers there, or {_BEHIND}"
            return AskError(what, cause="a proxy or Prometheus itself has failed", fix=fix)
        case _:
            return AskError(what, cause=f"this is not the address of a {PROMETHEUS.name}", fix=PROMETHEUS.address)


def of_answer(url: str, status: int, error: str, kind: str) -> HistoryError:
    """Make the error for one that Prometheus reports; `kind` is its errorType."""
    if kind in ("timeout", "canceled") or ("too many samples" in error and status in TOO_LARGE):
        return TooMuchError(f"{url} cannot answer", cause=error, fix=_SMALLER)
    if status == TOO_MANY:
        return _too_many(url, error)
    what, cause = f"{url} refuses the question", error or f"status {status}"
    if any(words in error for words in _AMBIGUOUS):
        fix = "give each cluster a label `cluster`, and let no two jobs or servers have the same series"
        return HistoryError(what, cause=cause, fix=fix)
    if status >= INTERNAL:
        return HistoryError(what, cause=cause, fix="read the log of that Prometheus, and ask again")
    fix = "check that it is Prometheus 2.35 or later, or a program that answers its API"
    return HistoryError(what, cause=cause, fix=fix)


def _too_many(url: str, error: str) -> HistoryError:
    return HistoryError(
        f"{url} answers with status {TOO_MANY}",
        cause=error or "it permits fewer questions in this time",
        fix="ask again later or about a shorter time, or raise the limit of the proxy or tenant",
    )
