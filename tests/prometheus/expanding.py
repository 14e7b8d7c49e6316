"""
A board's queries as Grafana sends them: what can be chosen on top of the board, and what is put in for `$…`.

In: the board's JSON, a Prometheus that knows the values. Out: choices, and PromQL without a `$`.
Law: as Grafana's Prometheus data source does it (packages/grafana-prometheus: interpolateQueryExpr,
prometheusSpecialRegexEscape, getRateIntervalScopedVariable).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from prometheus.scraping import Prometheus

Choice = Mapping[str, str | Sequence[str]]
"""What each variable has: one value, or several; those that take several may have `ALL`."""
ALL = "$__all"


@dataclass(frozen=True, slots=True)
class Window:
    """A time range as Unix times, and the scrape interval that the data source has in its settings; seconds."""

    start: int
    end: int
    scrape: int = 60
    points: int = 1000
    """About as many as a panel has pixels."""

    def step(self, least: str = "") -> int:
        """The distance of two points; `least` is the panel's own minimum, such as `5m`."""
        wanted = max((self.end - self.start) // self.points, self.scrape, seconds(least) if least else 0)
        return -(-wanted // 15) * 15


def seconds(duration: str) -> int:
    """Read `5m`."""
    return int(duration[:-1]) * {"s": 1, "m": 60, "h": 3600, "d": 86400}[duration[-1]]


def expanded(expression: str, choice: Choice, variables: Sequence[Mapping[str, Any]], window: Window, step: int) -> str:
    """Put in what was chosen, and the intervals."""
    put_in = {
        "__rate_interval": f"{max(step + window.scrape, 4 * window.scrape)}s",
        "__interval": f"{step}s",
        "__range": f"{window.end - window.start}s",
    }
    for one in variables:
        put_in[one["name"]] = _interpolated(choice[one["name"]], one)
    return re.sub(r"\$\{(\w+)\}|\$(\w+)", lambda found: put_in[found[1] or found[2]], expression)


def _interpolated(value: str | Sequence[str], variable: Mapping[str, Any]) -> str:
    """A single choice is compared as it is; of several each is part of a regular expression."""
    if not variable["multi"] and not variable["includeAll"]:
        assert isinstance(value, str)
        return value.replace("\\", r"\\").replace("'", r"\\'")
    if value == ALL:
        return str(variable["allValue"])
    values = [value] if isinstance(value, str) else value
    escaped = [re.sub(r"[$^*{}[\]+?.()|]", r"\\\\\g<0>", one.replace("\\", r"\\\\")) for one in values]
    return escaped[0] if len(escaped) == 1 else f"({'|'.join(escaped)})"


def choices(prometheus: Prometheus, board: Mapping[str, Any], window: Window) -> Iterator[Choice]:
    """Yield what can be chosen: of one-value menus each value; of the others all, the first, and two by name."""
    variables = [one for one in board["templating"]["list"] if one["type"] == "query"]
    yield from _chosen(prometheus, variables, variables, window, {})


def _chosen(
    prometheus: Prometheus,
    all_: Sequence[Mapping[str, Any]],
    left: Sequence[Mapping[str, Any]],
    window: Window,
    so_far: Choice,
) -> Iterator[Choice]:
    if not left:
        yield so_far
        return
    one, *others = left
    values = menu(prometheus, one, [each for each in all_ if each["name"] in so_far], window, so_far)
    possible: list[str | list[str]] = [ALL, values[0], values[:2]] if one["multi"] else [*values]
    for value in possible:
        yield from _chosen(prometheus, all_, others, window, {**so_far, one["name"]: value})


def menu(
    prometheus: Prometheus,
    variable: Mapping[str, Any],
    before: Sequence[Mapping[str, Any]],
    window: Window,
    so_far: Choice,
) -> list[str]:
    """The values that a variable offers. A label that no series has is an empty menu, and counts as the empty value."""
    query = expanded(variable["query"]["query"], so_far, before, window, window.step())
    if variable.get("regex"):
        return list(texts(prometheus, variable["regex"], query, window.end))
    (found,) = re.findall(r"label_values\((.*), (\w+)\)", query)
    asked = {"match[]": found[0], "start": str(window.start), "end": str(window.end)}
    return sorted(prometheus.get(f"/api/v1/label/{found[1]}/values", **asked)) or [""]


def texts(prometheus: Prometheus, regex: str, query: str, at: float) -> dict[str, str]:
    """
    Values of a menu that is read from series, and what people read for each, in the order of the texts.

    As Grafana's data source writes a series (queryResultQuery in metric_find_query.ts), and its variables read it: by
    the groups `text` and `value` of a regular expression.
    """
    (expression,) = re.findall(r"^query_result\((.+)\)\s*$", query)
    series = prometheus.get("/api/v1/query", query=expression, time=str(at))["result"]
    lines = ["{" + ",".join(f'{name}="{text}"' for name, text in one["metric"].items()) + "} 1 0" for one in series]
    pattern = re.compile(re.sub(r"\(\?<(?=\w)", "(?P<", regex.strip("/")))
    found = [one.groupdict() for line in lines if (one := pattern.search(line))]
    assert len({one["value"] for one in found}) == len(lines), lines
    return {one["value"]: one["text"] for one in sorted(found, key=lambda one: one["text"])}
