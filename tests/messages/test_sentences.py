"""What Events say."""

import pytest

from builders import limit, pod
from enforcer.messages.action_texts import TEXTS
from enforcer.messages.sentences import acted, duration, exceeded, held, reported
from enforcer.policy.history import Holding
from enforcer.policy.limit_holders import key_of
from enforcer.policy.vocabulary import Mode, Rung
from exporter.model import DeviceKey, GpuUuid

GIB = 2**30
GPU, POD = DeviceKey(GpuUuid("GPU-1")), pod("train-0", "team")
EXCESS = Holding(
    key_of(GPU, POD.uid, "main"), limit(POD, GPU, 8 * GIB, system="example"), POD.namespace, POD.name, 10 * GIB
)
BEGIN = 'Container "main" uses 10 GiB of GPU-1, 2 GiB more than its limit of 8 GiB (declared by example annotation)'


def test_the_user_is_told_what_comes_next() -> None:
    """Each mode says truly what follows: nothing, what would be done, or what will be done and when."""
    said = exceeded(EXCESS, Mode.ENFORCE, Rung.EVICT, 120.0)
    assert said == f"{BEGIN}. If it stays above the limit, the pod will be evicted in 2 min."
    said = exceeded(EXCESS, Mode.DRY_RUN, Rung.EVICT, 120.0)
    assert said == f"{BEGIN}. In mode enforce, the pod would be evicted in 2 min; in mode dry-run nothing is done."
    said = exceeded(EXCESS, Mode.WARN, None)
    assert said == f"{BEGIN}. Nothing else will be done about it (mode warn)."


def test_every_action_says_who_what_and_where_it_was_declared() -> None:
    """Fenced, evicted, killed and held tell the same facts, and then what was done, or why not."""
    before, after = TEXTS[Rung.EVICT].before, [TEXTS[rung].after for rung in (Rung.FENCE, Rung.KILL)]
    assert before is not None
    fenced, killed = (acted(event.note, EXCESS, over=125.0) for event in after if event is not None)
    said = {
        fenced: "From now on the driver refuses it more memory of this device. What it holds stays with it.",
        acted(before.note, EXCESS, over=125.0, grace=30.0): (
            ", for 3 min: the pod is evicted. It has 30 s to end; its controller may start another one."
        ),
        killed: (
            ", for 3 min: the container was killed. Whether it is started again is for the pod's restart policy to say."
        ),
        held(EXCESS, Rung.EVICT, "a PodDisruptionBudget forbids it"): (
            "Now the pod would be evicted, but a PodDisruptionBudget forbids it. It is looked at again in every round."
        ),
    }
    for text, end in said.items():
        assert text.startswith(BEGIN)
        assert text.endswith(end)


def test_a_pod_as_a_whole_is_named_as_such() -> None:
    """Where the limit is the pod's, no container is accused."""
    whole = Holding(key_of(GPU, POD.uid), limit(POD, GPU, GIB, scope="pod"), POD.namespace, POD.name, 3 * GIB)
    assert reported(whole, "x").startswith("The pod uses 3 GiB of GPU-1, 2 GiB more")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.0, "0 s"), (-1.0, "0 s"), (0.2, "1 s"), (119.0, "119 s"), (120.0, "2 min"), (121.0, "3 min")],
)
def test_times_are_rounded_up(seconds: float, text: str) -> None:
    """Nobody is told a time that is over earlier."""
    assert duration(seconds) == text
