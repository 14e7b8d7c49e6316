"""Promises of exporter/rounds/placements.py: what is kept from the round before is what would be made anew."""

from dataclasses import dataclass, replace

from hypothesis import given
from hypothesis import strategies as st

from builders import GIB, gpu, leaf, memory, pod, usage
from exporter.config import Policy, tolerance_of
from exporter.limits.loading import builtin
from exporter.model import DeclaredContainer, DeclaredPod, Gpu, Inventory, NodeFacts, PodUid, Sharing, Tolerance, Usage
from exporter.rounds.limits import Limiting, Limits

GPUS = (gpu(0, memory=memory()), gpu(1, memory=memory()), replace(gpu(2, memory=memory()), vendor="amd"))
STRICT, LOOSE = tolerance_of(Policy()), replace(tolerance_of(Policy()), ratio=0.9)
HAMI = NodeFacts({"nvidia.com/gpu": "8"}, labels={"gpu": "on"}, annotations={"hami.io/node-nvidia-register": "x"})
CATALOGUE = tuple(system for system in builtin() if system.name in {"gpusteward", "hami-nvidia", "nvidia-timeslicing"})
"""The systems that such pods are of: to ask all 52 takes four times as long, and gives the same limits."""
assert len(CATALOGUE) == 3
SLICED = {leaf(index): (Sharing.TIME_SLICING, 4) for index in (0, 1)}


@dataclass(frozen=True)
class Moment:
    """What one round finds of two pods, and of the node."""

    megabytes: tuple[str, str]
    used: tuple[int | None, int | None]
    devices: tuple[int, int]
    terminating: bool
    recorded: bool
    tolerance: Tolerance | None
    gpus: tuple[Gpu, ...]

    def inventory(self) -> Inventory:
        pods = [replace(pod("a"), terminating=self.terminating), pod("b")]
        record = {"hami.io/vgpu-devices-allocated": f"{leaf(0).uuid},NVIDIA,6000,30:;"}
        declared = [
            DeclaredPod(
                who.uid,
                who.namespace,
                who.name,
                annotations=record if self.recorded else {},
                containers=(DeclaredContainer("main", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": amount}),),
            )
            for who, amount in zip(pods, self.megabytes, strict=True)
        ]
        return Inventory(
            pods={who.uid: who for who in pods},
            declared={PodUid(each.uid): each for each in declared},
            sharing=SLICED,
            node=HAMI,
            known=True,
            live=True,
        )

    def usages(self) -> list[Usage]:
        return [
            usage(pod(name), leaf(device), used)
            for name, device, used in zip("ab", self.devices, self.used, strict=True)
        ]


def limits(keeps: Limiting, now: Moment) -> Limits:
    keeps.tolerance = now.tolerance
    facts = now.inventory()
    for _ in keeps.refresh(facts, now.gpus, [each.uuid for each in now.gpus]):
        pass
    return keeps.limits(facts, now.usages())


moments = st.builds(
    Moment,
    st.tuples(*[st.sampled_from(["8192", "many"])] * 2),
    st.tuples(*[st.sampled_from([None, GIB, 20 * GIB])] * 2),
    st.tuples(*[st.sampled_from([0, 2])] * 2),
    st.booleans(),
    st.booleans(),
    st.sampled_from([STRICT, LOOSE]),
    st.sampled_from([GPUS, GPUS[:2]]),
)


@given(st.lists(moments, min_size=1, max_size=6))
def test_what_is_kept_is_what_would_be_made_anew(story: list[Moment]) -> None:
    """Whatever changes between rounds, the limits are those of a daemon that starts now with the saved values."""
    keeps = Limiting(CATALOGUE)
    for now in story:
        kept = limits(keeps, now)
        assert kept == limits(Limiting(CATALOGUE, first_seen=keeps.first_seen), now)


@given(moments)
def test_a_round_without_a_change_makes_no_new_limit(now: Moment) -> None:
    """The same facts give the same objects: a million unchanged rounds make no work for others."""
    keeps = Limiting(CATALOGUE)
    first, second = limits(keeps, now), limits(keeps, now)
    assert [id(limit) for limit in first.limits] == [id(limit) for limit in second.limits]
