"""
The policy's metrics.

What comes in: the last verdict, the history, the tally, the snapshot. What goes out: metric families.

The rule: an unknown value has no sample, as in the exporter. Counters of actions begin at 0 for each step of the ladder
and each namespace with a limit on this node. So the first action shows in `increase()`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import TypeVar

from prometheus_client.core import Metric

from enforcer.messages.tally import BUCKETS, KEPT, Tally
from enforcer.messages.tally import FAILURES as FAILED
from enforcer.policy.history import History, Standing, Verdict
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Place, Reason, Rung, State
from exporter.metrics.family import Family, counter, gauge, histogram
from exporter.metrics.labels import CONTAINER, NodeLabels, labelled
from exporter.model import Snapshot

Key = TypeVar("Key", bound=str | tuple[str, ...])

OVER_SECONDS = counter(
    "container_over_limit_seconds_total",
    CONTAINER,
    "Time in which the container was measured over its limit, in seconds. The container is empty where the limit is "
    "the whole pod's or a claim's.",
)
DUE_SECONDS = counter(
    "due_seconds_total",
    (*CONTAINER, "reason", "kind"),
    "Time in which an action on the container was due, in seconds, by the reason why none happened and its kind: "
    "chosen, waiting, unknown or evaded. Both are empty while nothing prevented the action.",
)
STATE = gauge(
    "container_state",
    (*CONTAINER, "state"),
    "The policy's state of the container: ok, over, grace, due, acting, held, exempt, unjudged. Always 1.",
)
ACTIONS = counter(
    "actions_total",
    ("action", "namespace"),
    "Requests that were sent; notify counts the warnings that the API server accepted.",
)
FAILURES = counter(
    "action_failures_total",
    ("action", "namespace", "reason"),
    "Actions that did not come about, or had no effect in time, by what went wrong.",
)
UNDELIVERED = counter(
    "warnings_undelivered_total",
    ("namespace",),
    "Warnings that the API server did not accept within a minute; the grace of the container runs all the same.",
)
LAST = gauge(
    "last_action_timestamp_seconds",
    ("namespace", "pod", "container", "action"),
    "Unix time at which the effect of the last action was seen; shown for 15 minutes.",
)
DURATION = histogram(
    "action_duration_seconds",
    ("action",),
    "Time from the beginning of the excess to the effect seen, in seconds.",
)
DRY_RUN = counter(
    "dry_run_actions_total",
    ("action", "namespace"),
    "Dry runs that began. Budgets and spacing do not limit them. A pod that stays over its limit counts again after 10 "
    "minutes, or sooner where its last look had no answer.",
)
REFUSALS = counter(
    "refusals_total",
    ("reason", "kind", "namespace"),
    "Times at which an action came to be held, or to be held for another reason.",
)
HELD = gauge(
    "held_containers", ("reason", "kind", "namespace"), "Containers for which an action is due and held, by reason."
)
RIGHTS_MISSING = gauge(
    "namespace_rights_missing",
    ("namespace",),
    "Namespaces that consent and in which the API server does not allow evictions. Always 1.",
)
MODE = gauge("enforcement_mode", ("mode",), "The effective mode of the node. Always 1.")
CONFIGURED = gauge(
    "configured_mode",
    ("mode",),
    "The mode that the config asks for. enforcement_mode is lower where the stop file, a breaker, an invalid config or "
    "a missing prerequisite restricts it. Always 1.",
)
BREAKER = gauge("breaker_open", ("breaker",), "Whether the breaker is open, and stops all actions.")
BUDGET = gauge(
    "budget_remaining",
    ("scope",),
    "Actions that the budget still allows: of the node, and of its most spent namespace.",
)

FAMILIES: tuple[Family, ...] = (
    OVER_SECONDS, DUE_SECONDS, STATE, ACTIONS, FAILURES, UNDELIVERED, DRY_RUN, LAST, DURATION, REFUSALS, HELD,
    RIGHTS_MISSING, MODE, CONFIGURED, BREAKER, BUDGET,
)  # fmt: skip


def collect(snapshot: Snapshot, verdict: Verdict, history: History, tally: Tally, rules: Rules) -> Iterator[Metric]:
    """Yield the families."""
    node, subject = snapshot.node, NodeLabels(snapshot).container

    yield OVER_SECONDS.of(
        (subject(*series), seconds) for series, seconds in sorted(history.over_seconds.items(), key=str)
    )
    yield DUE_SECONDS.of(
        (subject(namespace, pod, container, device, **_why(reason)), seconds)
        for (namespace, pod, container, device, reason), seconds in sorted(history.due_seconds.items(), key=str)
    )
    named = [standing for standing in verdict.standings if standing.pod]
    by_urgency = sorted(named, key=_urgency)
    states = {(holder.namespace, holder.pod, holder.container, holder.device): holder.state for holder in by_urgency}
    yield STATE.of((subject(*key, state=state), 1) for key, state in states.items())
    namespaces = sorted({standing.namespace for standing in named})
    for family, counted in ((ACTIONS, tally.requested), (DRY_RUN, tally.dry_runs)):
        yield family.of(
            (labelled(node, action=rung, namespace=namespace), count)
            for (rung, namespace), count in _from_zero(counted, product(rules.ladder, namespaces))
        )
    harsh = [rung for rung in rules.ladder if rung is not Rung.NOTIFY]
    yield FAILURES.of(
        (labelled(node, action=rung, namespace=namespace, reason=result), count)
        for (rung, namespace, result), count in _from_zero(tally.failed, product(harsh, namespaces, FAILED))
    )
    yield UNDELIVERED.of(
        (labelled(node, namespace=namespace), count) for namespace, count in _from_zero(tally.undelivered, namespaces)
    )
    yield LAST.of(
        (labelled(node, namespace=namespace, pod=pod, container=container, action=rung), at)
        for (namespace, pod, container, rung), at in sorted(tally.last.items())
        if snapshot.taken_at - at < KEPT
    )
    yield DURATION.counted(
        BUCKETS,
        (
            (labelled(node, action=rung), counts, tally.seconds[rung])
            for rung, counts in sorted(tally.durations.items())
        ),
    )
    yield REFUSALS.of(
        (labelled(node, **_why(reason), namespace=namespace), count)
        for (reason, namespace), count in sorted(tally.refused.items())
    )
    held = Counter(
        (standing.reason, standing.namespace)
        for standing in verdict.standings
        if standing.state is State.HELD and standing.reason
    )
    yield HELD.of(
        (labelled(node, **_why(reason), namespace=namespace), count)
        for (reason, namespace), count in sorted(held.items(), key=str)
    )
    now = verdict.at.monotonic
    missing = (
        name
        for (place, name, reason), hold in history.holds.items()
        if (place, reason) == (Place.NAMESPACE, Reason.NO_RIGHTS) and (hold.until is None or now < hold.until)
    )
    yield RIGHTS_MISSING.of((labelled(node, namespace=namespace), 1) for namespace in sorted(missing))
    yield MODE.of([(labelled(node, mode=verdict.mode), 1)])
    yield CONFIGURED.of([(labelled(node, mode=rules.mode), 1)])
    yield BREAKER.of((labelled(node, breaker=breaker), float(breaker in verdict.breakers)) for breaker in Breaker)
    yield BUDGET.of((labelled(node, scope=scope), left) for scope, left in verdict.remaining.items())


def _why(reason: Reason | None) -> dict[str, str]:
    return {"reason": reason or "", "kind": reason.kind if reason else ""}


_ORDER = (
    State.OK, State.UNJUDGED, State.EXEMPT, State.OVER, State.GRACE, State.HELD, State.DUE, State.ACTING,
)  # fmt: skip


def _urgency(standing: Standing) -> int:
    """Of two generations of one name, the more urgent state is shown."""
    return _ORDER.index(standing.state)


def _from_zero(counted: Mapping[Key, int], expected: Iterable[Key]) -> Iterator[tuple[Key, int]]:
    """List counters in order; those that are expected and never counted are 0."""
    yield from sorted({**dict.fromkeys(expected, 0), **counted}.items())
