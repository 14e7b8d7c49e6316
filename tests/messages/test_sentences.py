"""What Events say."""

from dataclasses import replace

import pytest

from builders import limit, pod
from enforcer.messages.action_texts import TEXTS
from enforcer.messages.sentences import acted, duration, exceeded, held, obstacle
from enforcer.policy.history import Holding, Standing
from enforcer.policy.holder import key_of
from enforcer.policy.vocabulary import Mode, Reason, Rung, State, Trigger
from exporter.model import DeviceKey, GpuUuid

GIB = 2**30
GPU, POD = DeviceKey(GpuUuid("GPU-1")), pod("train-0", "team")
LIMIT = limit(POD, GPU, 8 * GIB, system="example")
EXCESS = Holding(key_of(GPU, POD.uid, "main"), LIMIT, POD.namespace, POD.name, 10 * GIB)
BEGIN = 'Container "main" uses 10 GiB of GPU-1, 2 GiB more than its limit of 8 GiB (declared by example annotation)'
WARNED = Standing(
    EXCESS.key,
    LIMIT,
    POD.namespace,
    POD.name,
    10 * GIB,
    State.GRACE,
    None,
    "",
    Mode.ENFORCE,
    Rung.EVICT,
    over=True,
    since=100.0,
    level=15.0,
    capacity=135.0,
    warned_at=115.0,
)


def test_a_warning_says_for_how_long_and_what_follows_when() -> None:
    """With the trigger limit the action will follow, with contended it may."""
    so_far = f"{BEGIN}. It was over its limit for 15 s in total"
    assert exceeded(WARNED, Trigger.LIMIT) == f"{so_far}; after 2 min 15 s in total the pod will be evicted."
    may = "the pod may be evicted when a neighbour is short of memory"
    assert exceeded(WARNED, Trigger.CONTENDED) == f"{so_far}; after 2 min 15 s in total {may}."
    fenced = exceeded(replace(WARNED, rung=Rung.FENCE), Trigger.LIMIT)
    assert fenced.endswith("in total the driver will refuse it more memory.")


def test_seconds_so_far_are_not_rounded_up_and_those_to_come_are() -> None:
    """No pod reads that it was over for longer than it was, or that it has more time than it has."""
    odd = replace(WARNED, level=16.9, capacity=134.2)
    assert "for 16 s in total; after 2 min 15 s in total" in exceeded(odd, Trigger.LIMIT)


def test_a_pod_that_is_warned_while_it_is_within_its_limit_reads_so() -> None:
    """Other terms are announced at once, also to a pod that comes and goes."""
    assert "uses 4 GiB of GPU-1, within its limit of 8 GiB" in exceeded(replace(WARNED, used=4 * GIB), Trigger.LIMIT)


@pytest.mark.parametrize(
    ("changes", "word", "words"),
    [
        ({"prevented": Reason.NO_RIGHTS}, "no_rights", Reason.NO_RIGHTS.words),
        ({"prevented": Reason.MODE, "mode": Mode.WARN}, "warn", "the mode is warn"),
        ({"mode": Mode.DRY_RUN}, "dry-run", "the mode is dry-run"),
        ({"rung": None}, "no_rung", Reason.NO_RUNG.words),
        ({"rung": Rung.NOTIFY}, "no_rung", Reason.NO_RUNG.words),
        ({"state": State.HELD, "reason": Reason.BLOCKED, "detail": "budget x"}, "blocked", "(budget x)"),
    ],
)
def test_what_prevents_an_action_is_named(changes: dict[str, object], word: str, words: str) -> None:
    """One word for scripts, and half a sentence for people."""
    why = obstacle(replace(WARNED, **changes))  # type: ignore[arg-type]
    assert why is not None
    assert (why[0], why[1].endswith(words)) == (word, True)
    note = exceeded(replace(WARNED, **changes), Trigger.LIMIT)  # type: ignore[arg-type]
    assert note.endswith(f"For now, only this message follows: {why[1]}.")


def test_what_only_waits_is_no_obstacle() -> None:
    """A budget ends by itself, and the action follows."""
    assert obstacle(replace(WARNED, state=State.HELD, reason=Reason.BUDGET_NODE)) is None


def test_every_action_says_who_what_and_where_it_was_declared() -> None:
    """Texts about fences, evictions, kills and held pods have the same facts, and then what was done, or why not."""
    before, after = TEXTS[Rung.EVICT].before, [TEXTS[rung].after for rung in (Rung.FENCE, Rung.KILL)]
    assert before is not None
    done = "SIGKILL was sent after its grace"
    fenced, killed = (acted(event.note, EXCESS, done, since=185.0) for event in after if event is not None)
    said = {
        fenced: ". From now on the driver refuses it more memory of this device. It keeps the memory that it has.",
        acted(before.note, EXCESS, since=185.0, grace=30.0): (
            ". gpusteward began to count this excess 3 min 5 s ago, and the pod is evicted. "
            "It has 30 s to end. Its controller may start another one."
        ),
        killed: (
            ". gpusteward began to count this excess 3 min 5 s ago, and the container was killed: "
            "SIGKILL was sent after its grace. "
            "The pod's restart policy says whether it starts again."
        ),
        held(WARNED, "a PodDisruptionBudget forbids it"): (
            ". It was over its limit for 15 s in total. Now the pod would be evicted, "
            "but a PodDisruptionBudget forbids it."
        ),
    }
    for text, end in said.items():
        assert text == BEGIN + end


def test_a_pod_as_a_whole_is_named_as_such() -> None:
    """Where the limit is the pod's, no container is accused."""
    whole = replace(WARNED, key=key_of(GPU, POD.uid), limit=limit(POD, GPU, GIB, scope="pod"), used=3 * GIB)
    assert held(whole, "x").startswith("The pod uses 3 GiB of GPU-1, 2 GiB more")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((0.0, "0 s"), (-1.0, "0 s"), (0.2, "1 s"), (119.0, "119 s"), (120.0, "2 min"), (121.0, "2 min 1 s")),
        *((135.0, "2 min 15 s"), (3599.0, "59 min 59 s"), (3600.0, "1 h"), (3601.0, "1 h 1 min"), (7200.0, "2 h")),
    ],
)
def test_times_are_rounded_up(seconds: float, text: str) -> None:
    """A time that is announced is never over earlier."""
    assert duration(seconds) == text
