"""Fences, purely: which cgroup, how high, whose a present limit is, and when one falls."""

from __future__ import annotations

from dataclasses import replace

import pytest
from msgspec import structs

from builders import limit
from default_rules import default_rules
from enforcer.actions.fence.driver import CgroupLimits
from enforcer.actions.fence.fences import STEP, Fence, NoCgroup, fallen, height, leaf, lowered, mounted, ours
from enforcer.policy.history import Standing
from enforcer.policy.holder import CaseKey
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Mode, Reason, Rung, State
from exporter.base.cgroup_owner import USUAL
from exporter.model import ContainerId, DeviceKey, Fault, GpuUuid, Pod, PodUid, Snapshot
from sources.limits import MAIN, POD, SIDE, SLICE, scope

GIB, MIB = 1 << 30, 1 << 20
VICTIM = PodUid(POD), ContainerId(MAIN)
KEY = CaseKey(PodUid(POD), "main", ContainerId(MAIN), "", "GPU-0")
FENCE = Fence(KEY, scope(MAIN), 12 * GIB, None, 8 * GIB)
DECLARED = limit(Pod(PodUid(POD), "team", "train-1"), DeviceKey(GpuUuid("GPU-0")), 8 * GIB, system="policy")
FENCING = default_rules(mode=Mode.ENFORCE, ladder=(Rung.NOTIFY, Rung.FENCE, Rung.EVICT))
CRIO = f"{SLICE}/crio-{MAIN}.scope"
HYBRID = f"12:memory:/kubepods/burstable/pod{POD}/{MAIN}\n1:name=systemd:/kubepods/burstable/pod{POD}/{MAIN}\n"
"""Version 1 as the kubelet's cgroupfs driver makes it (tests/containers/pods.py)."""


def v2(*paths: str) -> list[str]:
    return [f"0::{path}\n" for path in paths]


@pytest.mark.parametrize(
    ("texts", "found"),
    [
        (v2(scope(MAIN)), scope(MAIN)),
        (v2(scope(MAIN), scope(MAIN)), scope(MAIN)),
        (v2(f"/kubepods/burstable/pod{POD}/{MAIN}"), f"/kubepods/burstable/pod{POD}/{MAIN}"),
        (v2(f"{CRIO}/container"), f"{CRIO}/container"),
        (v2(f"{CRIO}/container", f"{CRIO}/container/exec"), f"{CRIO}/container"),
        (v2(f"{scope(MAIN)}/init", f"{scope(MAIN)}/docker/1", f"{scope(MAIN)}/docker/2"), scope(MAIN)),
        (v2(f"{scope(MAIN)}/init"), scope(MAIN)),
        (v2(f"{scope(MAIN)}/container"), scope(MAIN)),
        (v2(f"{CRIO}/container/docker/1"), f"{CRIO}/container"),
        (v2(f"{CRIO}/init"), CRIO),
        (v2(CRIO, f"{CRIO}/container"), CRIO),
        (v2(f"{scope(MAIN)}/kubepods/pod{POD}/{SIDE}"), scope(MAIN)),
        ([f"{HYBRID}0::{scope(MAIN)}\n"], scope(MAIN)),
        ([], NoCgroup.NOT_FOUND),
        ([HYBRID], NoCgroup.NOT_UNIFIED),
        ([f"{HYBRID}0::/\n"], NoCgroup.NOT_UNIFIED),
        ([f"{HYBRID}0::/system.slice/containerd.service\n"], NoCgroup.NOT_UNIFIED),
        ([f"{HYBRID}0::{scope(SIDE)}\n"], NoCgroup.NOT_UNIFIED),
        (v2(scope(MAIN), scope(SIDE)), NoCgroup.NOT_UNIFIED),
        (v2(scope(MAIN), CRIO), NoCgroup.NOT_UNIFIED),
        (v2(SLICE), NoCgroup.NOT_UNIFIED),
        (v2(f"/../../kubepods/burstable/pod{POD}/{MAIN}"), NoCgroup.PRIVATE),
    ],
)
def test_the_cgroup_is_the_containers_own_or_none(texts: list[str], found: str | NoCgroup) -> None:
    """The runtime's, not what it made below (it could leave that), and never one that it shares with others."""
    assert leaf(texts, VICTIM, USUAL) == found


@pytest.mark.parametrize(
    ("lines", "found"),
    [
        ("30 24 0:26 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw", "/sys/fs/cgroup"),
        ("40 24 0:31 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw", "/sys/fs/cgroup/unified"),
        (
            "50 24 0:26 / /host/sys/fs/cgroup rw - cgroup2 cgroup2 rw\n30 24 0:26 / /sys/fs/cgroup rw - cgroup2 x rw",
            "/sys/fs/cgroup",
        ),
        ("30 24 0:26 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw", None),
        ("31 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", None),
        ("", None),
        ("nonsense - cgroup2 x", None),
    ],
)
def test_the_whole_hierarchy_is_looked_for(lines: str, found: str | None) -> None:
    """A part of it (a private namespace's) is none, nor is version 1. Lines as in proc_pid_mountinfo(5)."""
    assert mounted(lines) == found


@pytest.mark.parametrize(
    ("limit", "used", "at"),
    [
        (8 * GIB, 12 * GIB, 12 * GIB),
        (8 * GIB, 12 * GIB + 1, 12 * GIB + 2 * MIB),
        (8 * GIB, 0, 8 * GIB),
        (8 * GIB + 1, 0, 8 * GIB + 2 * MIB),
        (0, 0, 0),
    ],
)
def test_a_fence_is_never_below_what_is_held_or_declared(limit: int, used: int, at: int) -> None:
    """The larger of both, in whole pages, rounded up."""
    assert height(limit, used) == at
    assert at >= limit and at >= used and at % (2 * MIB) == 0


@pytest.mark.parametrize(
    ("told", "seen", "to"),
    [
        (None, GIB, None),
        (GIB, None, None),
        (12 * GIB, GIB, None),
        (GIB, 12 * GIB, None),
        (13 * GIB, 13 * GIB, None),
        (12 * GIB - STEP + 1, 0, None),
        (12 * GIB - STEP, 0, 12 * GIB - STEP),
        (9 * GIB, 8 * GIB, 9 * GIB),
        (8 * GIB, 9 * GIB, 9 * GIB),
        (8 * GIB, 8 * GIB, 8 * GIB),
        (0, 0, 8 * GIB),
    ],
)
def test_a_fence_follows_the_use_down_to_the_limit(told: int | None, seen: int | None, to: int | None) -> None:
    """By a step at least, never below usage or limit, never up, and not while either figure of usage is unknown."""
    assert lowered(FENCE, told, seen) == to


def test_the_last_step_may_be_small() -> None:
    """A fence just above the limit comes down to it."""
    low = structs.replace(FENCE, hard=8 * GIB + 2 * MIB)
    assert lowered(low, 0, 0) == 8 * GIB
    assert lowered(structs.replace(FENCE, hard=8 * GIB), 0, 0) is None


@pytest.mark.parametrize(
    ("told", "mine"),
    [
        (CgroupLimits(0, 12 * GIB, 1), True),
        (CgroupLimits(0, 14 * GIB, 1), True),
        (CgroupLimits(0, 11 * GIB, 1), False),
        (CgroupLimits(1, 12 * GIB, 1), False),
        (CgroupLimits(), False),
    ],
)
def test_ours_is_what_we_set_and_nothing_else(told: CgroupLimits, mine: bool) -> None:
    """The value that was noted, or the one that it was to replace; another value, or a guarantee, is another's."""
    assert ours(structs.replace(FENCE, before=14 * GIB), told) is mine
    assert not ours(None, told)


def test_no_limit_is_nobodys() -> None:
    """A new fence has none before it, and none in the driver is not ours."""
    assert not ours(FENCE, CgroupLimits(0, None, 1))


def standing(**changes: object) -> Standing:
    made = Standing(
        KEY,
        DECLARED,
        "team",
        "train-1",
        12 * GIB,
        State.OVER,
        None,
        "",
        Mode.ENFORCE,
        Rung.EVICT,
    )
    return replace(made, **changes)  # type: ignore[arg-type]


SEEN = Snapshot(
    1,
    1.7e9,
    100.0,
    "node",
    gpus_read=frozenset({GpuUuid("GPU-0")}),
    pods={PodUid(POD): Pod(PodUid(POD), "team", "train-1")},
    names_live=True,
)
STALE = Fault("allocations", "away", "the kubelet does not answer")


@pytest.mark.parametrize(
    ("known", "snapshot", "rules", "why"),
    [
        (standing(), SEEN, FENCING, None),
        (standing(state=State.OK, used=GIB), SEEN, FENCING, None),
        (standing(state=State.UNJUDGED, reason=Reason.READING_UNKNOWN, used=None), SEEN, FENCING, None),
        (standing(), SEEN, replace(FENCING, mode=Mode.OBSERVE), "the mode is observe"),
        (standing(), SEEN, replace(FENCING, mode=Mode.DRY_RUN), "the mode is dry-run"),
        (standing(), SEEN, replace(FENCING, mode=Mode.OFF), "the mode is off"),
        (
            standing(),
            SEEN,
            replace(FENCING, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),)),
            "the mode is observe",
        ),
        (standing(mode=Mode.DRY_RUN), SEEN, replace(FENCING, ceilings=(Ceiling(Mode.DRY_RUN, Reason.JOURNAL),)), None),
        (standing(), SEEN, replace(FENCING, ladder=(Rung.NOTIFY, Rung.EVICT)), "the ladder has no fence"),
        (standing(limit=replace(DECLARED, memory=9 * GIB)), SEEN, FENCING, "it declares a higher limit"),
        (standing(limit=replace(DECLARED, memory=None)), SEEN, FENCING, None),
        (None, SEEN, FENCING, "it declares no limit"),
        (None, replace(SEEN, limits=(DECLARED,)), FENCING, None),
        (None, replace(SEEN, limits=(replace(DECLARED, container="side"),)), FENCING, "it declares no limit"),
        (None, replace(SEEN, names_live=False), FENCING, None),
        (None, replace(SEEN, gpus_read=frozenset()), FENCING, None),  # its limit may stand where its processes are
        (None, replace(SEEN, faults=(STALE,)), FENCING, None),
        (None, replace(SEEN, pods={}), FENCING, None),
        (
            standing(state=State.EXEMPT, reason=Reason.EXEMPT),
            SEEN,
            FENCING,
            "an annotation exempts it, and its namespace allows that",
        ),
        (standing(state=State.EXEMPT, reason=Reason.LABEL), SEEN, FENCING, "a label protects it"),
        (standing(state=State.EXEMPT, reason=Reason.TERMINATING), SEEN, FENCING, None),
        (standing(state=State.EXEMPT, reason=Reason.POD_UNKNOWN), SEEN, FENCING, None),
        (
            standing(mode=Mode.WARN, prevented=Reason.MODE),
            SEEN,
            FENCING,
            "the mode of its namespace is warn",
        ),
        (standing(mode=Mode.OBSERVE, prevented=Reason.NAMESPACE_UNKNOWN), SEEN, FENCING, None),
    ],
)
def test_a_fence_falls_with_its_reason_and_stands_in_doubt(
    known: Standing | None, snapshot: Snapshot, rules: Rules, why: str | None
) -> None:
    """Mode, ladder, limit, exemption, namespace: each ends it; what is not known, or passes by itself, does not."""
    standings = {} if known is None else {KEY: known}
    assert fallen(FENCE, standings, snapshot, rules) == why
