"""What the policy could say of the node that has everything: one of each, made by hand."""

from collections.abc import Iterator
from dataclasses import replace

from prometheus_client.core import Metric

from builders import GIB, leaf, limit, pod
from default_rules import default_rules
from enforcer.messages.tally import Tally
from enforcer.policy.history import History, Moment, Opened, Standing, Verdict
from enforcer.policy.limit_holders import key_of
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, Scope, State
from enforcer.runtime.metrics import collect
from exporter.model import ContainerId, PodUid, Snapshot

NOW = Moment(5_000.0, 5_000.0)
UID = PodUid("22222222-new")
HELD = Standing(
    key_of(leaf(0), UID, "main", ContainerId("b" * 64)),
    limit(pod("trainer-0", "team-a", uid=UID), leaf(0), 8 * GIB),
    "team-a",
    "trainer-0",
    12 * GIB,
    State.HELD,
    Reason.NO_CONSENT,
    "the namespace needs the label gpusteward.io/mode: enforce",
    Mode.DRY_RUN,
    Rung.EVICT,
    since=4_800.0,
    over=True,
)
OLD = replace(HELD, key=key_of(leaf(0), PodUid("11111111-old"), "main"), state=State.OK, reason=None, detail="")
POD = replace(HELD, key=key_of(leaf(0), UID), namespace="team-b", pod="notebook-1", state=State.GRACE)
VERDICT = Verdict(
    NOW,
    Mode.DRY_RUN,
    (HELD, OLD, replace(POD, reason=None, detail="")),
    breakers={Breaker.SAMPLER: Opened(4_900.0, 5_200.0, "devices came, went, or have another driver")},
    remaining={Scope.NODE: 2, Scope.NAMESPACE: 1, Scope.WORKLOAD: 2},
)
HISTORY = History(over_seconds={("team-a", "trainer-0", "main", leaf(0)): 195.5})
TALLY = Tally(
    begun={(Rung.NOTIFY, "team-a"): 3},
    rehearsed={(Rung.EVICT, "team-b"): 1},
    failed={(Rung.EVICT, "team-a"): 1},
    durations={Rung.EVICT: (0, 0, 0, 2, 1, 0, 0, 0, 0)},
    seconds={Rung.EVICT: 512.25},
    last={("team-b", "notebook-1", "main", Rung.EVICT): 1_699_999_990.0},
    refused={(Reason.NO_CONSENT, "team-a"): 2},
)


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the policy's families."""
    return collect(snapshot, VERDICT, HISTORY, TALLY, default_rules(mode=Mode.ENFORCE))
