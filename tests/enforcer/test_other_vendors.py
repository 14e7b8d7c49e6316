"""GPUs of other vendors, from the kernel's files to the policy: what follows from an excess, what is held, and why."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from enforcer.history import History, Moment, Standing
from enforcer.policy import decide
from enforcer.rules import Rules
from enforcer.terms import Mode, Reason, State, Trigger
from exporter.model import PodUid
from sources.kernel import Node
from sources.rounds import Pods, Rounds, cgroup, uid

BUS = "0000:03:00.0"
GIB = 2**30


class Stage:
    """An Intel GPU that two pods share, each of which may hold 1 GiB, and the policy over its rounds."""

    def __init__(self, folder: Path, rules: Rules) -> None:
        self.node = Node(folder / "node")
        self.node.card(BUS, driver="xe", number=1, figures={"tile0/physical_vram_size_bytes": 16 * GIB})
        asked = {"gpu.intel.com/xe": "1", "gpu.intel.com/memory.max": "1Gi"}
        self.pods = Pods(
            handed={"a": ("gpu.intel.com/xe", ("card1-0",)), "b": ("gpu.intel.com/xe", ("card1-1",))},
            asked={"a": asked, "b": asked},
            offered={"gpu.intel.com/xe": ("card1-0", "card1-1")},
        )
        self.rounds = Rounds(self.node, self.pods)
        self.rules = rules
        self.history = History()
        for pid, name in ((100, "a"), (200, "b")):
            self.node.process(pid, cgroup=f"0::/{cgroup(name)}")

    def holds(self, pid: int, size: int, *, shared: int = 0) -> None:
        """Let a process hold bytes, of which some buffers are shared."""
        text = f"drm-driver:\txe\ndrm-client-id:\t{pid}\ndrm-pdev:\t{BUS}\ndrm-resident-vram0:\t{size}"
        self.node.descriptor(pid, 5, f"{text}\ndrm-shared-vram0:\t{shared}")

    async def judged(self) -> Mapping[PodUid, tuple[State, Reason | None]]:
        """Judge some rounds, an interval apart; where each pod stands then."""
        standings: tuple[Standing, ...] = ()
        for number in range(1, 40):
            at = 1000.0 + number * self.rules.interval
            snapshot = replace(await self.rounds.next(), monotonic=at)
            self.history, verdict = decide(snapshot, self.rules, self.history, Moment(at, at))
            standings = verdict.standings
        await self.rounds.close()
        return {one.key.pod_uid: (one.state, one.reason) for one in standings}


RULES = Rules(mode=Mode.DRY_RUN, trigger=Trigger.LIMIT, hold_off=0.0)
TRUSTED = replace(RULES, trusted_vendors=frozenset({"nvidia", "intel"}))


async def test_an_excess_is_held_until_somebody_trusts_the_vendor(tmp_path: Path) -> None:
    """3 GiB of 1: seen, and held, because nobody compared these figures with hardware; the other one is well."""
    stage = Stage(tmp_path, RULES)
    stage.holds(100, 3 * GIB)
    stage.holds(200, GIB // 2)
    assert await stage.judged() == {uid("a"): (State.HELD, Reason.UNVERIFIED_BACKEND), uid("b"): (State.OK, None)}


async def test_a_trusted_vendor_is_judged_like_any(tmp_path: Path) -> None:
    """The operator named it: the excess leads to a (rehearsed) action."""
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB)
    stage.holds(200, GIB // 2)
    assert (await stage.judged())[uid("a")][0] in {State.DUE, State.ACTING}


async def test_shared_buffers_convict_nobody(tmp_path: Path) -> None:
    """Of 3 GiB all but a half may be somebody else's: what is held is then not known, and nothing follows."""
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB, shared=5 * GIB // 2)
    assert (await stage.judged())[uid("a")][0] is State.UNJUDGED


async def test_what_is_surely_ones_own_convicts(tmp_path: Path) -> None:
    """Of 3 GiB a half may be somebody else's: the rest is above the limit, too."""
    stage = Stage(tmp_path, TRUSTED)
    stage.holds(100, 3 * GIB, shared=GIB // 2)
    assert (await stage.judged())[uid("a")][0] in {State.DUE, State.ACTING}
