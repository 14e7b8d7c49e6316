"""Promises of exporter/rounds/watched.py: which devices are looked at between two full rounds."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from exporter.model import (
    ClaimUsage,
    ContainerId,
    Device,
    DeviceAccount,
    DeviceKey,
    EnforcedBy,
    Gpu,
    GpuUuid,
    Limit,
    Mechanism,
    Memory,
    PodUid,
    Scope,
    Sharing,
    Snapshot,
    Subject,
    Usage,
)
from exporter.rounds.watched import REMEMBERED, Suspects, crowded

KEY = DeviceKey(GpuUuid("GPU-1"))
POD = PodUid("11111111-1111-1111-1111-111111111111")
OTHER = PodUid("22222222-2222-2222-2222-222222222222")


def device(memory: Memory, sharing: Sharing = Sharing.EXCLUSIVE, replicas: int = 1) -> Device:
    gpu = Gpu(KEY.uuid, 0, "x", memory=memory)
    return Device(KEY, gpu, DeviceAccount(KEY, memory), gpu.utilization, 0.0, sharing, replicas)


def usage(used: int | None, container: str = "main", *, pod: PodUid = POD, generation: str = "a") -> Usage:
    return Usage(Subject(pod, container, ContainerId(generation * 64)), KEY, used)


def limit(ceiling: int | None, container: str = "main", *, scope: Scope = Scope.CONTAINER, claim: str = "") -> Limit:
    return Limit(
        POD, container, KEY, 10, "x", Mechanism.ANNOTATION, scope, EnforcedBy.NONE, claim=claim, ceiling=ceiling
    )


def snapshot(limits: Sequence[Limit] = (), usages: Sequence[Usage] = (), claims: Sequence[ClaimUsage] = ()) -> Snapshot:
    """A GPU with room, for one pod."""
    return Snapshot(
        1,
        0.0,
        0.0,
        "n",
        devices=(device(Memory(100, 90)),),
        limits=tuple(limits),
        usages=tuple(usages),
        claim_usages=tuple(claims),
    )


def suspects(seen: Snapshot) -> frozenset[GpuUuid]:
    """The GPUs that one snapshot makes suspect."""
    remembered = Suspects()
    remembered.see(seen)
    return remembered.at(seen.monotonic)


def test_no_device_is_crowded_before_the_first_snapshot() -> None:
    """Without a snapshot there is no device to look at."""
    assert crowded(None) == frozenset()


def test_a_gpu_stays_suspect_for_a_minute_after_the_last_excess() -> None:
    """A pause of less than a minute between two excesses does not slow the readings down."""
    remembered, over = Suspects(), snapshot([limit(12)], [usage(13)])
    remembered.see(over)
    remembered.see(replace(over, monotonic=20.0))
    remembered.see(replace(snapshot([limit(12)], [usage(1)]), monotonic=30.0))
    assert remembered.at(20.0 + REMEMBERED - 0.1) == {KEY.uuid}
    assert remembered.at(20.0 + REMEMBERED) == frozenset()


def test_reserved_memory_counts_as_full() -> None:
    """Memory that the driver reserves is not free for a pod: it makes a device crowded like any use."""
    shared = device(Memory(100, 10, 20), Sharing.TIME_SLICING, 2)
    assert crowded(Snapshot(1, 0.0, 0.0, "n", devices=(shared,))) == {KEY}
    roomy = replace(shared, account=DeviceAccount(KEY, Memory(100, 11, 20)))
    assert crowded(Snapshot(1, 0.0, 0.0, "n", devices=(roomy,))) == frozenset()


@pytest.mark.parametrize(
    ("limits", "usages", "expected"),
    [
        ([limit(12)], [usage(13)], True),
        ([limit(12)], [usage(12)], False),  # at the ceiling is within it
        ([limit(None)], [usage(99)], False),  # no limit, no ceiling
        ([limit(12)], [usage(None)], False),  # an unknown usage is no excess
        ([limit(12)], [], False),
        ([limit(12)], [usage(13, "sidecar")], False),
        ([limit(12)], [usage(13, pod=OTHER)], False),
        ([limit(12)], [usage(7), usage(7, generation="b")], False),  # each generation is held to it by itself
        ([limit(12)], [usage(7), usage(13, generation="b")], True),
        ([limit(12, "", scope=Scope.POD)], [usage(7), usage(6, "sidecar")], True),  # a pod's limit bounds the sum
        ([limit(12, "", scope=Scope.POD)], [usage(7), usage(5, "sidecar")], False),
        ([limit(12, "", scope=Scope.POD)], [usage(13), usage(None, "sidecar")], True),
        ([limit(12), limit(30, "", scope=Scope.POD)], [usage(13)], True),
    ],
)
def test_a_gpu_with_an_excess_is_suspect(limits: list[Limit], usages: list[Usage], *, expected: bool) -> None:
    """A container or pod that certainly holds more than its ceiling makes its GPU suspect, shared or not."""
    assert suspects(snapshot(limits, usages)) == (frozenset({KEY.uuid}) if expected else frozenset())


@pytest.mark.parametrize(("used", "expected"), [(13, True), (12, False), (None, False)])
def test_a_claim_above_its_ceiling_makes_its_gpu_suspect(used: int | None, *, expected: bool) -> None:
    """A claim counts with what its holders hold by it together, and not with what one pod holds."""
    claimed = limit(12, "", scope=Scope.CLAIM, claim="team/shared")
    for claim in ("shared", "another"):
        held = ClaimUsage("team", claim, KEY, used)
        assert bool(suspects(snapshot([claimed], [usage(90)], [held]))) is (expected and claim == "shared")
