"""What the policy could say of the node that has everything: one of each, made by hand."""

from collections.abc import Iterator
from dataclasses import replace

from prometheus_client.core import Metric

from builders import GIB, leaf, limit, pod
from default_rules import default_rules
from enforcer.messages.tally import Tally
from enforcer.policy.history import History, Hold, Moment, Opened, Result, Standing, Verdict
from enforcer.policy.holder import key_of
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung, Scope, State
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
    level=135.0,
    capacity=135.0,
    prevented=Reason.NO_CONSENT,
)
OLD = replace(HELD, key=key_of(leaf(0), PodUid("11111111-old"), "main"), state=State.OK, reason=None, detail="")
POD = replace(HELD, key=key_of(leaf(0), UID), namespace="team-b", pod="notebook-1", state=State.GRACE)
VERDICT = Verdict(
    NOW,
    Mode.DRY_RUN,
    (HELD, OLD, replace(POD, reason=None, detail="")),
    breakers={Breaker.BLAST_RADIUS: Opened(4_900.0, "3 of 5 workloads with limits are over them")},
    remaining={Scope.NODE: 2, Scope.NAMESPACE: 1},
)
HISTORY = History(
    over_seconds={("team-a", "trainer-0", "main", leaf(0)): 195.5},
    due_seconds={("team-a", "trainer-0", "main", leaf(0), Reason.NO_CONSENT): 60.5},
    holds={(Place.NAMESPACE, "team-b", Reason.NO_RIGHTS): Hold(None, "RoleBinding missing")},
)
TALLY = Tally(
    requested={(Rung.NOTIFY, "team-a"): 3},
    dry_runs={(Rung.EVICT, "team-b"): 1},
    failed={(Rung.EVICT, "team-a", Result.FORBIDDEN): 1},
    undelivered={"team-a": 1},
    durations={Rung.EVICT: (0, 0, 0, 2, 1, 0, 0, 0, 0)},
    seconds={Rung.EVICT: 512.25},
    last={("team-b", "notebook-1", "main", Rung.EVICT): 1_699_999_990.0},
    refused={(Reason.NO_CONSENT, "team-a"): 2},
)


def families(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the policy's families."""
    return collect(snapshot, VERDICT, HISTORY, TALLY, default_rules(mode=Mode.ENFORCE))
