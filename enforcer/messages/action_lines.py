"""
One action or dry run in a sentence, for `/api/v1/decisions` and `gpusteward explain`.

What comes in: an action, its Unix time, and its result as far as it is known. What goes out: one sentence.

The rule: the sentence says "evicted" only where that was done or accepted. Its time is UTC. Usage and limit are those
of the moment at which the action was chosen.
"""

from datetime import UTC, datetime

from enforcer.messages.action_texts import TEXTS
from enforcer.messages.sentences import compared, who
from enforcer.policy.history import Action, Result
from enforcer.policy.vocabulary import ON_A_CONTAINER

_SENT = frozenset({Result.ACCEPTED, Result.VERIFIED, Result.LINGERS, Result.STUCK})
RESULTS = {
    Result.ACCEPTED: "the request was accepted",
    Result.UNKNOWN: "whether it was carried out is not known",
    Result.ABANDONED: "nothing was done, because the last look spared the pod",
    Result.BLOCKED: "nothing was done, because a PodDisruptionBudget or a webhook does not allow it",
    Result.FORBIDDEN: "nothing was done, because the API server does not allow it in this namespace",
    Result.UNAUTHORIZED: "nothing was done, because the API server does not accept the daemon's token",
    Result.REFUSED: "nothing was done, because the API server refused the request",
    Result.IMPOSSIBLE: "nothing was done, because it cannot be done to this container",
    Result.FAILED: "nothing was done, because the request failed",
    Result.REHEARSED: "nothing was done, because it was a dry run",
    Result.VERIFIED: "the effect was seen",
    Result.LINGERS: "the pod takes long to end",
    Result.STUCK: "no effect was seen in time",
}
"""What each result means, as half a sentence."""


def action_line(action: Action, at: float, result: Result | None = None, detail: str = "") -> str:
    """Say when what was done to which pod or container, why, and with which result."""
    return (
        f"{utc(at)}: gpusteward {_done(action, result)}, because {compared(action, 'used')}; {_ended(result, detail)}"
    )


def utc(at: float) -> str:
    """Write a Unix time for people, in UTC."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _done(action: Action, result: Result | None) -> str:
    target = f"pod {action.namespace}/{action.pod}"
    if action.rung in ON_A_CONTAINER:
        target = f"{who(action.container)} of {target}"
    if action.dry:
        return f"would {action.rung} {target}"
    if result in _SENT:
        return f"{TEXTS[action.rung].past} {target}"
    return f"{'began' if result is None else 'tried'} to {action.rung} {target}"


def _ended(result: Result | None, detail: str) -> str:
    if result is None:
        return "the result is not known yet"
    return f"{RESULTS[result]} ({': '.join(filter(None, (result, detail)))})"
