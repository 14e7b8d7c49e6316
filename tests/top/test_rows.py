"""What the table says of a document: which container holds what, how sure that is, and what comes next."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from builders import GIB, TAKEN_AT, allocation, device, gpu, gpu_uuid, leaf, limit, memory, pod, snapshot, usage
from enforcer.policy.vocabulary import State
from exporter.api import schema as read
from exporter.top.fetch import parse
from exporter.top.figures import UNKNOWN
from exporter.top.rows import URGENT, Row, Tone
from exporter.top.table import Table, table
from serving.node import busy
from serving.table import judged, served, shown

if TYPE_CHECKING:
    from types import FrameType


def named(found: Table, name: str) -> Row:
    (row,) = [row for row in found.rows if row.name == name]
    return row


def standing(state: str, uid: str, **more: Any) -> dict[str, Any]:
    """Make an entry of `standings` for the container `main` on GPU 0, as `/api/v1/snapshot` writes it."""
    container_id = more.pop("container_id", None)
    plain = {"namespace": "team-a", "pod": "trainer-0", "container": "main", "uuid": gpu_uuid(0), "gpu_instance": None}
    about = {"pod_uid": uid, "container_id": container_id, "state": state, "reason": None, "next": None, "due_at": None}
    return {**plain, **about, **more}


def one_container(used: int | None, declared: int | None, *, policy: dict[str, Any] | None = None) -> Row:
    """Show `team-a/trainer-0/main` on a GPU of 80 GiB."""
    who = pod()
    limits = [] if declared is None else [limit(who, leaf(), declared)]
    facts = snapshot(
        device(gpu(memory=memory(used=70 * GIB)), attributed=70 * GIB),
        usages=[usage(who, leaf(), used)],
        pods=[who],
        limits=limits,
    )
    return named(shown(facts, policy), "team-a/trainer-0/main")


CONTAINER_ID = usage(pod(), leaf()).subject.container_id


def its(state: str, **more: Any) -> dict[str, Any]:
    return standing(state, pod().uid, container_id=CONTAINER_ID, **more)


def test_whoever_holds_memory_has_a_row() -> None:
    """GPUs by index, on each its containers by use, then those with nothing but an allocation, then the others."""
    names = [(row.inset, row.name, row.used) for row in shown(busy()).rows]
    assert names == [
        (0, "GPU 0  NVIDIA H100 80GB HBM3  00000000", "62.0Gi"),
        (2, "research/llama-0/main", "30.0Gi"),
        (2, "notebooks/anna/main", "18.0Gi"),
        (2, "notebooks/anna/sidecar", "3.0Gi"),
        (2, "[host processes]", "2.0Gi"),
        (2, "[ghosts]", "6.0Gi"),
        (2, "[unattributed]", "3.0Gi"),
        (0, "GPU 1  NVIDIA H100 80GB HBM3  00000001", "79.0Gi"),
        (2, "research/llama-0/main", "60.0Gi"),
        (2, "<script>/<img src=x onerror=alert(1)>/main", "15.0Gi"),
        (2, "[unattributed]", "4.0Gi"),
        (0, "GPU 2  NVIDIA H100 80GB HBM3  00000002", ""),
        (2, "3g.40gb  gi 2", "31.0Gi"),
        (4, "inference/triton/main", "31.0Gi"),
        (2, "1g.10gb  gi 9", "0"),
        (4, "notebooks/idle/main", UNKNOWN),
        (0, "GPU 3  NVIDIA H100 80GB HBM3  00000003", "20.0Gi"),
        (2, "[unattributed]", UNKNOWN),
        (0, "GPU 4  model unknown  00000004", UNKNOWN),
    ]


def test_a_gpu_says_how_it_is() -> None:
    """What is wrong with it; temperature, power, load; how it is shared. One that did not answer says that alone."""
    found = shown(busy()).rows
    notes = {row.name.partition("  ")[0]: row.notes for row in found if not row.inset}
    assert notes["GPU 0"] == (
        "2 ECC uncorrected",
        "61C",
        "412W",
        "throttled sw_power_cap",
        "busy 93%",
        "time-slicing x4",
    )
    assert notes["GPU 1"] == (f"{UNKNOWN}C", f"{UNKNOWN}W", f"busy {UNKNOWN}", "mps x10")
    assert notes["GPU 2"] == ("XID 31 10m ago", f"{UNKNOWN}C", f"{UNKNOWN}W", "mig")
    assert notes["GPU 3"][:2] == ("row remap failed", "needs drain_and_reset")
    assert notes["GPU 4"] == ("did not answer",)
    assert found[0].sm == "71%" and found[0].share == "78%" and found[0].limit == "80.0Gi"
    tones = {row.name[:5]: row.tone for row in found if not row.inset}
    assert tones == {
        "GPU 0": Tone.WARN,
        "GPU 1": Tone.PLAIN,
        "GPU 2": Tone.WARN,
        "GPU 3": Tone.WARN,
        "GPU 4": Tone.BAD,
    }
    assert found[-1].named is found[-1].tone is Tone.BAD


def test_unknown_is_a_dash_and_nothing_is_nothing() -> None:
    """Unmeasured usage is never 0, and 0 is never unknown. A container without a declared limit has none."""
    unknown, none = one_container(None, 8 * GIB), one_container(0, None)
    assert (unknown.used, unknown.limit, unknown.share, unknown.sm) == (UNKNOWN, "8.0Gi", UNKNOWN, UNKNOWN)
    assert (none.used, none.limit, none.share) == ("0", "", "")
    assert unknown.notes == none.notes == ()


def test_the_declared_share_of_the_compute_is_beside_the_used_one() -> None:
    """The smaller of a process's and its container's share counts; no share is shown where none is declared."""
    who, other = pod(), pod("other")
    facts = snapshot(
        device(gpu(memory=memory(used=70 * GIB)), attributed=70 * GIB),
        usages=[usage(who, leaf(), GIB, sm=0.62), usage(other, leaf(), GIB, sm=0.2)],
        pods=[who, other],
        limits=[limit(who, leaf(), compute=0.5), limit(who, leaf(), compute=0.75, scope="process")],
    )
    found = shown(facts)
    assert named(found, "team-a/trainer-0/main").sm == "62% of 50%"
    assert named(found, "team-a/other/main").sm == "20%"


@pytest.mark.parametrize(
    ("used", "declared", "notes", "tone"),
    [
        (7, 8, (), Tone.PLAIN),
        (7.25, 8, ("near",), Tone.WARN),
        (8, 8, ("near",), Tone.WARN),
        (9, 8, ("over",), Tone.WARN),
        (79, 80, (), Tone.PLAIN),
        (81, 80, ("over",), Tone.WARN),
        (0, 0, (), Tone.PLAIN),
    ],
)
def test_where_nobody_decides_the_limit_speaks(used: float, declared: int, notes: tuple[str, ...], tone: Tone) -> None:
    """`near` from nine tenths on, `over` from the first byte above. A container with a whole device may fill it."""
    row = one_container(int(used * GIB), declared * GIB)
    assert (row.notes, row.tone) == (notes, tone)


def test_the_share_of_the_limit() -> None:
    """In percent, and above 100 where it is above; of a limit of nothing there is no share."""
    assert one_container(6 * GIB, 8 * GIB).share == "75%"
    assert one_container(12 * GIB, 8 * GIB).share == "150%"
    assert one_container(12 * GIB, 0).share == UNKNOWN


@pytest.mark.parametrize(
    ("says", "notes", "tone"),
    [
        (its("ok"), ("ok",), Tone.PLAIN),
        (its("over", next="evict"), ("over", "then evict"), Tone.WARN),
        (its("unjudged", reason="undeclared", next="evict"), ("unjudged", "undeclared"), Tone.PLAIN),
        (its("grace", next="evict", due_at=TAKEN_AT + 119), ("grace 118s", "then evict"), Tone.WARN),
        (its("due", next="evict", due_at=TAKEN_AT - 3), ("due", "then evict"), Tone.BAD),
        (its("acting", next="kill"), ("acting", "then kill"), Tone.BAD),
        (its("held", reason="no_consent"), ("held", "no_consent"), Tone.WARN),
        (its("exempt", reason="priority"), ("exempt", "priority"), Tone.PLAIN),
    ],
)
def test_what_comes_next(says: dict[str, Any], notes: tuple[str, ...], tone: Tone) -> None:
    """The policy's state, when an action follows, why none does or which; as of now, not of the round."""
    row = one_container(6 * GIB, 8 * GIB, policy=judged(says))
    assert (row.notes, row.tone) == (notes, tone)


GRACE = {"over_seconds": 45.0, "capacity_seconds": 135.0}


@pytest.mark.parametrize(
    ("says", "notes"),
    [
        (its("grace", next="evict", due_at=TAKEN_AT + 90, **GRACE), ("grace 89s", "45 of 135s (33%)", "then evict")),
        (
            its("grace", due_at=TAKEN_AT + 90, prevented="no_consent", **GRACE),
            ("grace", "45 of 135s (33%)", "no action: no_consent"),
        ),
        (
            its("held", reason="blocked", prevented="blocked", over_seconds=135.0, capacity_seconds=135.0),
            ("held", "blocked", "135 of 135s (100%)"),
        ),
        (its("over", prevented="dry-run", **GRACE), ("over", "45 of 135s (33%)", "no action: mode dry-run")),
        (its("unjudged", reason="undeclared", prevented="observe"), ("unjudged", "undeclared")),
        (its("ok", prevented="no_consent", over_seconds=0.0, capacity_seconds=135.0), ("over",)),
    ],
)
def test_how_much_of_the_grace_is_used_and_what_prevents_the_action(
    says: dict[str, Any], notes: tuple[str, ...]
) -> None:
    """The seconds over the limit that count; no countdown to an action that would not follow."""
    assert one_container(9 * GIB, 8 * GIB, policy=judged(says)).notes == notes


def test_within_the_limit_near_it() -> None:
    """A container that the policy finds within its limit is still said to be near it."""
    assert one_container(int(7.5 * GIB), 8 * GIB, policy=judged(its("ok"))).notes == ("near",)
    assert one_container(int(7.5 * GIB), 8 * GIB, policy=judged(its("held", reason="spacing"))).notes[0] == "held"


def test_whose_standing_it_is() -> None:
    """Its own or its pod's, the most urgent one; not that of an earlier generation, of a neighbour, of another GPU."""
    pods = standing("grace", pod().uid, container="", container_id=None, due_at=TAKEN_AT + 11)
    others = [
        standing("due", pod().uid, container_id="another generation"),
        standing("due", "another pod", container_id=CONTAINER_ID),
        its("due", uuid=gpu_uuid(1)),
        its("due", gpu_instance=1),
    ]
    assert one_container(GIB, 8 * GIB, policy=judged(its("ok"), pods, *others)).notes == ("grace 10s",)
    assert set(URGENT) == set(State)


def test_the_state_of_a_shared_claim_is_that_of_each_of_its_pods() -> None:
    """On the device of the claim. The action names the pod that it would hit, which may be another one."""
    pods = [pod(name) for name in ("rank-0", "rank-1", "alone-0")]
    facts = snapshot(
        device(gpu(memory=memory(used=3 * GIB)), attributed=3 * GIB),
        usages=[usage(who, leaf(), GIB) for who in pods],
        pods=pods,
        limits=[limit(who, leaf(), GIB, scope="claim", claim="shared") for who in pods[:2]],
    )
    claim = {"pod": "rank-0", "pod_uid": None, "container": "", "claim": "team-a/shared"}
    grace = its("grace", next="evict", due_at=TAKEN_AT + 11, **claim)
    others = [its("due", **{**claim, "claim": "team-a/another"}), {**its("due", **claim), "uuid": gpu_uuid(1)}]
    found = shown(facts, judged(grace, *others))
    for name in ("rank-0", "rank-1"):
        assert named(found, f"team-a/{name}/main").notes == ("grace 10s", "then evict rank-0", "1.0Gi a claim")
    assert named(found, "team-a/alone-0/main").notes == ()


def test_limits_that_are_not_the_containers_own() -> None:
    """Notes show them with their scope, beside what is wrong with a declaration. The cell stays empty."""
    who = pod()
    facts = snapshot(
        device(gpu(memory=memory(used=GIB)), attributed=GIB),
        usages=[usage(who, leaf())],
        pods=[who],
        limits=[
            limit(who, leaf(), 16 * GIB, scope="pod", bypassed=True),
            limit(who, leaf(), 4 * GIB, scope="process"),
            limit(who, leaf(), problems=("no quantity",)),
            limit(who, leaf(), 3 * GIB, scope="process", container="another"),
            limit(pod("another"), leaf(), 2 * GIB, scope="pod"),
        ],
    )
    row = named(shown(facts), "team-a/trainer-0/main")
    assert row.limit == row.share == ""
    assert row.notes == ("limit bypassed", "limit invalid", "16.0Gi a pod", "4.0Gi a process")


def test_an_idle_container_is_said_to_be_idle_only_where_that_is_known() -> None:
    """After a complete round it has no process; else all that is known is that it was handed the device."""
    calm = snapshot(device(gpu(), attributed=0), pods=[pod()], allocations=[allocation(pod(), leaf())])
    assert named(shown(calm), "team-a/trainer-0/main").notes == ("no process",)
    unsure = msgspec.structs.replace(parse(served(calm)), complete=False)
    assert named(table(unsure), "team-a/trainer-0/main").notes == ("allocated",)
    unproven = msgspec.structs.replace(parse(served(calm)), pid_domain_proven=False)
    assert named(table(unproven), "team-a/trainer-0/main").notes == ("allocated",)


def test_nobody_is_left_out() -> None:
    """A holder on a device, or a GPU, that the document does not describe still has a row, below what is described."""
    lost = [usage(pod("a"), leaf(7)), usage(pod("b"), leaf(0, 3))]
    found = shown(snapshot(device(gpu(), attributed=0), usages=lost, pods=[pod("a"), pod("b")]))
    names = [row.name for row in found.rows]
    assert names.index("instance  gi 3") < names.index("team-a/b/main") < names.index("team-a/a/main")
    assert f"GPU {UNKNOWN}  model unknown  00000007" in names
    nameless = snapshot(device(gpu(), attributed=0), usages=[usage(pod(uid="1234"), leaf())])
    assert "unknown pod 1234/main" in [row.name for row in shown(nameless).rows]


def test_other_vendors_have_other_names() -> None:
    """Of a UUID its first group names the GPU; what is a PCI address stays whole."""
    raw = parse(served(snapshot(device(gpu(), attributed=0))))
    for uuid, short in [
        ("GPU-f4d4e956-9921-4089-af3b-c3e69093097e", "f4d4e956"),
        ("f4d4e956-9921-4089-af3b-c3e69093097e", "f4d4e956"),
        ("0000:c1:00.0", "0000:c1:00.0"),
        ("amd-1002740f", "amd-1002740f"),
    ]:
        (row,) = table(msgspec.structs.replace(raw, gpus=[read.Gpu(uuid)], devices=[])).rows
        assert row.name == f"GPU {UNKNOWN}  model unknown  {short}"


def test_two_vendors_count_from_0() -> None:
    """Two GPUs with one number are told apart by the vendor; one that is silent, by its UUID."""
    raw = parse(served(snapshot(device(gpu(), attributed=0))))
    two = [read.Gpu("GPU-f4d4e956-99-1", 0, vendor="nvidia"), read.Gpu("0000:c1:00.0", 0, up=False), read.Gpu("b", 1)]
    names = [row.name for row in table(msgspec.structs.replace(raw, gpus=two, devices=[])).rows]
    starts = ["GPU 0 0000:c1:00.0  ", "GPU 0 nvidia  ", "GPU 1  "]
    assert all(name.startswith(start) for name, start in zip(names, starts, strict=True)), names


def test_a_gpu_is_no_twin_of_itself() -> None:
    """A GPU that a document names twice has its number for itself."""
    raw = parse(served(snapshot(device(gpu(), attributed=0))))
    (row,) = table(msgspec.structs.replace(raw, gpus=[read.Gpu("b", 1, vendor="amd")] * 2, devices=[])).rows
    assert row.name.startswith("GPU 1  ")


def test_a_table_of_twice_as_many_gpus_is_twice_the_work() -> None:
    """A false daemon may name any number of GPUs, all with one index, and a fault of each."""
    raw = parse(served(snapshot(device(gpu(), attributed=0))))

    def lines(number: int) -> int:
        """Count the lines that run; a line in a loop counts each time."""
        uuids = [f"GPU-{one}" for one in range(number)]
        hostile = msgspec.structs.replace(
            raw,
            gpus=[read.Gpu(uuid, 0) for uuid in uuids],
            devices=[read.Device(uuid=uuid, gpu_instance=1) for uuid in uuids],
            faults=[read.Fault(source="devices", message="lost", subject=uuid) for uuid in uuids],
        )
        run, before = 0, sys.gettrace()

        def trace(_frame: FrameType, event: str, _argument: object) -> Any:
            nonlocal run
            run += event == "line"
            return trace

        sys.settrace(trace)
        try:
            table(hostile)
        finally:
            sys.settrace(before)
        return run

    few, many = lines(50), lines(100)
    assert few < many < 2.1 * few, "whoever looks at all for each has four times as much to do, in the end"


def test_the_load_of_an_instance_is_its_own() -> None:
    """A GPU with MIG has no figure for all of it, and none is made up."""
    found = shown(busy()).rows
    (whole,) = [row for row in found if row.name.startswith("GPU 2")]
    assert (whole.used, whole.limit, whole.share, whole.sm) == ("", "80.0Gi", "", "")
    assert named(shown(busy()), "3g.40gb  gi 2").share == "78%"
