"""
The policy's metrics.

What comes in: the last verdict, the history, the tally, the snapshot. What goes out: metric families.

The law: as the exporter's: what is unknown has no sample. Counters of actions begin at 0 for each rung of the ladder
and each namespace that has a limit here, so that the first action shows in `increase()`.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from itertools import product

from prometheus_client.core import Metric

from enforcer.messages.tally import BUCKETS, KEPT, Tally
from enforcer.policy.history import History, Standing, Verdict
from enforcer.policy.rules import Rules
from enforcer.policy.vocabulary import Breaker, Rung, State
from exporter.metrics.family import Family, counter, gauge, histogram
from exporter.metrics.labels import CONTAINER, Labels, NodeLabels, labelled
from exporter.model import Snapshot

OVER_SECONDS = counter(
    "container_over_limit_seconds_total",
    CONTAINER,
    "Time in which the subject was measured above its limit, in seconds; the container is empty where the limit is the "
    "whole pod's or a claim's.",
)
STATE = gauge(
    "container_state",
    (*CONTAINER, "state"),
    "Where the policy stands with the subject: ok, over, grace, due, acting, held, exempt, unjudged. Always 1.",
)
ACTIONS = counter(
    "actions_total", ("action", "namespace"), "Actions that were begun; notify counts the subjects whose grace began."
)
FAILURES = counter(
    "action_failures_total", ("action", "namespace"), "Actions that did not come about, or had no effect in time."
)
LAST = gauge(
    "last_action_timestamp_seconds",
    ("namespace", "pod", "container", "action"),
    "Unix time at which the effect of the last action was seen; told for 15 minutes.",
)
DURATION = histogram(
    "action_duration_seconds",
    ("action",),
    "Time from the first reading over the limit to the effect seen, in seconds.",
)
DRY_RUN = counter(
    "dry_run_actions_total", ("action", "namespace"), "Actions that would have been begun, had the mode been enforce."
)
REFUSALS = counter(
    "refusals_total", ("reason", "namespace"), "Times at which a subject came to be held, or for another reason."
)
HELD = gauge("held", ("reason", "namespace"), "Subjects that would be acted on now, but for this reason.")
MODE = gauge("enforcement_mode", ("mode",), "The effective mode of the node. Always 1.")
CONFIGURED = gauge(
    "configured_mode",
    ("mode",),
    "The mode that the config asks for; enforcement_mode is less where the stop file, a breaker, an invalid config or "
    "something that is missing restricts it. Always 1.",
)
BREAKER = gauge("breaker_open", ("breaker",), "Whether the breaker is open, and stops all actions.")
BUDGET = gauge(
    "budget_remaining",
    ("scope",),
    "Actions that the budget still allows: of the node, and of its most spent namespace and workload.",
)

FAMILIES: tuple[Family, ...] = (
    OVER_SECONDS, STATE, ACTIONS, FAILURES, DRY_RUN, LAST, DURATION, REFUSALS, HELD, MODE, CONFIGURED, BREAKER, BUDGET,
)  # fmt: skip


def collect(snapshot: Snapshot, verdict: Verdict, history: History, tally: Tally, rules: Rules) -> Iterator[Metric]:
    """Yield the families."""
    node, subject = snapshot.node, NodeLabels(snapshot).container

    yield OVER_SECONDS.of(
        (subject(*series), seconds) for series, seconds in sorted(history.over_seconds.items(), key=str)
    )
    named = [standing for standing in verdict.standings if standing.pod]
    by_urgency = sorted(named, key=_urgency)
    states = {(holder.namespace, holder.pod, holder.container, holder.device): holder.state for holder in by_urgency}
    yield STATE.of((subject(*key, state=state), 1) for key, state in states.items())
    namespaces = sorted({standing.namespace for standing in named})
    for family, counted in ((ACTIONS, tally.begun), (FAILURES, tally.failed), (DRY_RUN, tally.rehearsed)):
        yield family.of(_counted(node, counted, rules.ladder, namespaces))
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
        (labelled(node, reason=reason, namespace=namespace), count)
        for (reason, namespace), count in sorted(tally.refused.items())
    )
    held = Counter(
        (standing.reason, standing.namespace)
        for standing in verdict.standings
        if standing.state is State.HELD and standing.reason
    )
    yield HELD.of(
        (labelled(node, reason=str(reason), namespace=namespace), count)
        for (reason, namespace), count in sorted(held.items(), key=str)
    )
    yield MODE.of([(labelled(node, mode=verdict.mode), 1)])
    yield CONFIGURED.of([(labelled(node, mode=rules.mode), 1)])
    yield BREAKER.of((labelled(node, breaker=breaker), float(breaker in verdict.breakers)) for breaker in Breaker)
    yield BUDGET.of((labelled(node, scope=scope), left) for scope, left in verdict.remaining.items())


_ORDER = (
    State.OK, State.UNJUDGED, State.EXEMPT, State.OVER, State.GRACE, State.HELD, State.DUE, State.ACTING,
)  # fmt: skip


def _urgency(standing: Standing) -> int:
    """Of two generations of one name, the more urgent state is told."""
    return _ORDER.index(standing.state)


def _counted(
    node: str, counted: Mapping[tuple[Rung, str], int], ladder: Iterable[Rung], namespaces: Iterable[str]
) -> Iterator[tuple[Labels, float]]:
    zeros: dict[tuple[Rung, str], int] = dict.fromkeys(product(ladder, namespaces), 0)
    for (rung, namespace), count in sorted({**zeros, **counted}.items()):
        yield labelled(node, action=rung, namespace=namespace), count
