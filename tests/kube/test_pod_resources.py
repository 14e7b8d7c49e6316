"""The kubelet's bad days: each ends in the last view and a reason, and the next good answer is heard."""

import asyncio
import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from grpclib.const import Status
from grpclib.exceptions import GRPCError

from exporter.kube import pod_resources
from exporter.kube.allocations import ClaimedDevice, HeldClaim, Holding
from exporter.kube.pod_resources import KubeletError, PodResources, ask, socket_of
from exporter.kube.proto import pod_resources_pb2 as api
from kubelet.fake import ALL_CALLS, OLD_CALL, Answer, FakeKubelet, Listener
from patience import PATIENCE

ROOT = Path(__file__).parents[2]
UUID = "GPU-00000001-0000-4000-8000-000000000001"
RECORDED = (Path(__file__).parent / "fixtures" / "list.pb").read_bytes()


def listed(*pods: str, ids: tuple[str, ...] = (f"{UUID}::0",)) -> api.ListResponse:
    """A list of pods with the same devices."""
    container = api.ContainerResources(
        name="main", devices=[api.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=ids)]
    )
    return api.ListResponse(
        pod_resources=[api.PodResources(name=pod, namespace="ml", containers=[container]) for pod in pods]
    )


def offered(*ids: str) -> api.AllocatableResponse:
    """What could be handed out, one entry for each id, as the kubelet writes it."""
    return api.AllocatableResponse(
        devices=[api.ContainerDevices(resource_name="nvidia.com/gpu", device_ids=[device_id]) for device_id in ids]
    )


async def until(condition: Callable[[], bool], within: float = PATIENCE) -> None:
    """Wait until it holds."""
    async with asyncio.timeout(within):
        while not condition():
            await asyncio.sleep(0.005)


def open_files() -> int:
    """How many this process has."""
    return len(list(Path("/proc/self/fd").iterdir()))


@pytest.fixture
def socket(tmp_path: Path) -> Path:
    """Where a kubelet whose root is `tmp_path` has its socket."""
    return socket_of(tmp_path)


async def test_the_whole_of_a_list_is_read(socket: Path) -> None:
    """
    A list as upstream's own messages encode it: pods without devices, entries by NUMA node put together, claims.

    Share ids, CDI ids, CPUs, memory, topology and a field from the future are passed over.
    """
    async with FakeKubelet(socket, listed=RECORDED, allocatable=offered(f"{UUID}::1", f"{UUID}::0")):
        view = await ask(socket)
    assert view.pods == {("web", "plain"), ("ml", "train-0"), ("ml", "claims")}
    assert view.holdings == (
        Holding("ml", "train-0", "trainer", "nvidia.com/gpu.shared", (f"{UUID}::0", f"{UUID}::3")),
        Holding("ml", "train-0", "trainer", "rdma/hca", ("mlx5_0",)),
    )
    whole = ClaimedDevice("gpu.nvidia.com", "gpu-node", "gpu-0")
    mig = ClaimedDevice("gpu.nvidia.com", "gpu-node", "gpu-2-mig-1g10gb-19-0")
    assert view.claims == (HeldClaim("ml", "claims", "main", (whole, mig), claim="claims-gpu-x7k2p"),)
    assert view.allocatable == {"nvidia.com/gpu": (f"{UUID}::0", f"{UUID}::1")}
    assert (view.known, view.live, view.faults) == (True, True, ())


async def test_a_name_that_is_listed_twice_is_told(socket: Path) -> None:
    """Two generations under one name are seen as such; a name of another namespace is another name."""
    answer = listed("train", "train", "other")
    answer.pod_resources.add(name="other", namespace="web")
    async with FakeKubelet(socket, listed=answer, allocatable=offered()):
        assert (await ask(socket)).listed_twice == {("ml", "train")}


@pytest.mark.parametrize(
    "refusal",
    [
        pytest.param(GRPCError(Status.UNIMPLEMENTED, "unknown method"), id="before 1.21"),
        pytest.param(GRPCError(Status.UNKNOWN, "PodResources API GetAllocatableResources disabled"), id="gate off"),
    ],
)
async def test_a_kubelet_that_cannot_tell_what_it_offers_is_heard(socket: Path, refusal: GRPCError) -> None:
    """Without GetAllocatableResources the list stands, and what is offered is unknown, not nothing."""
    async with FakeKubelet(socket, listed=listed("train"), allocatable=refusal):
        view = await ask(socket)
    assert view.live
    assert view.pods == {("ml", "train")}
    assert view.allocatable is None


async def test_a_kubelet_with_the_alpha_api_alone_is_heard(socket: Path) -> None:
    """Before 1.20 there is v1alpha1 only; it is asked when v1 is not there, and not otherwise."""
    async with FakeKubelet(socket, listed_v1alpha1=listed("old")) as kubelet:
        assert (await ask(socket)).pods == {("ml", "old")}
        assert kubelet.asked == [ALL_CALLS[0], OLD_CALL, ALL_CALLS[1]]
        kubelet.answer(listed=listed("new"))
        assert (await ask(socket)).pods == {("ml", "new")}


async def test_a_server_without_the_api_is_told(socket: Path) -> None:
    """Some other gRPC server, which knows neither version, refuses."""
    async with FakeKubelet(socket):
        with pytest.raises(KubeletError, match="UNIMPLEMENTED") as caught:
            await ask(socket)
    assert caught.value.reason == "kubelet_refuses"


async def test_an_answer_of_16_mib_is_read(socket: Path) -> None:
    """A list just below the limit, four times gRPC's own, comes through whole: no flow-control window is in its way."""
    pods = tuple(f"pod-{number:06d}" for number in range(1000))
    answer = listed(*pods, ids=tuple(f"{UUID}::{number:0620d}" for number in range(25)))
    assert 15 * 2**20 < answer.ByteSize() <= pod_resources.LARGEST
    async with FakeKubelet(socket, listed=answer, allocatable=offered()):
        view = await ask(socket, deadline=60)
    assert (len(view.pods), sum(len(holding.device_ids) for holding in view.holdings)) == (1000, 25_000)


async def test_an_answer_beyond_the_limit_is_not_read(socket: Path) -> None:
    """What is longer is refused as a whole: half of a list would be a lie."""
    async with FakeKubelet(socket, listed=bytes(pod_resources.LARGEST + 1), allocatable=offered()):
        with pytest.raises(KubeletError, match="16777217 bytes") as caught:
            await ask(socket, deadline=60)
    assert caught.value.reason == "kubelet_garbled"


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(RECORDED[:-200], "kubelet_garbled", id="cut short"),
        pytest.param(b"\x0a\x04\x0a\x02\xff\xfe", "kubelet_garbled", id="not UTF-8"),
        pytest.param(b"\xff" * 64, "kubelet_garbled", id="garbage"),
        pytest.param(GRPCError(Status.RESOURCE_EXHAUSTED, "rejected by rate limit"), "kubelet_refuses", id="limited"),
        pytest.param(GRPCError(Status.UNKNOWN, "no device manager"), "kubelet_refuses", id="error"),
        pytest.param(None, "kubelet_slow", id="hung"),
    ],
)
@pytest.mark.parametrize("call", ["listed", "allocatable"])
async def test_a_bad_answer_changes_nothing(
    socket: Path, answer: Answer, reason: str, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whichever call goes wrong: the last view stays, whole, with a fault; the next good answer is heard."""
    good: dict[str, Answer] = {"listed": listed("train"), "allocatable": offered(f"{UUID}::0")}
    async with FakeKubelet(socket, **good) as kubelet:
        source = PodResources(socket, deadline=5)
        await source.ask()
        before = source.view()
        kubelet.answer(**{call: answer})
        with monkeypatch.context() as during:
            if answer is None:
                during.setattr(source, "_deadline", 0.3)  # not for the good answers, too
            await source.ask()
        after = source.view()
        assert (after.live, after.known, [fault.reason for fault in after.faults]) == (False, True, [reason])
        assert not any(fault.incomplete for fault in after.faults)
        assert (after.pods, after.holdings, after.allocatable) == (before.pods, before.holdings, before.allocatable)
        kubelet.answer(**good)
        await source.ask()
        assert source.view() == before


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """A frame of HTTP/2 (RFC 9113, section 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


# A server that promises 100 bytes, sends 6 of them, which are a message of their own, and ends the stream: SETTINGS;
# HEADERS with ":status: 200" (HPACK index 8) and the content type (name of index 31); DATA with END_STREAM.
LESS_THAN_PROMISED = (
    frame(4, 0, 0, b"")
    + frame(1, 4, 1, b"\x88\x0f\x10\x10application/grpc")
    + frame(0, 1, 1, b"\x00" + (100).to_bytes(4, "big") + b"\x0a\x04\x0a\x02ab")
)


@pytest.mark.parametrize(
    ("words", "closes", "reason"),
    [
        pytest.param(b"", True, "kubelet_garbled", id="closes at once"),
        pytest.param(b"", False, "kubelet_slow", id="says nothing"),
        pytest.param(b"HTTP/1.1 400 Bad Request\r\n\r\n", True, "kubelet_garbled", id="another protocol"),
        pytest.param(random.Random(7).randbytes(4096), True, "kubelet_garbled", id="noise"),
        pytest.param(LESS_THAN_PROMISED, False, "kubelet_garbled", id="less than its length"),
    ],
)
async def test_a_listener_that_is_no_kubelet_is_told(socket: Path, words: bytes, closes: bool, reason: str) -> None:
    """Whatever listens there, the daemon goes on without a view, and says that it has none."""
    async with Listener(socket, words, closes=closes):
        source = PodResources(socket, deadline=0.5)
        await source.ask()
    view = source.view()
    assert (view.known, view.live) == (False, False)
    assert [(fault.reason, fault.incomplete) for fault in view.faults] == [(reason, True)]


async def test_a_missing_socket_names_what_to_look_at(socket: Path) -> None:
    """No socket: the fault says which file was looked for, and which setting names it."""
    source = PodResources(socket)
    await source.ask()
    (fault,) = source.view().faults
    assert (fault.reason, fault.subject, fault.incomplete) == ("kubelet_away", str(socket), True)
    assert "node.kubelet_root" in fault.message


async def test_before_the_first_answer_nothing_is_known() -> None:
    """A view can be had at once; until the kubelet answered it is unknown, and a fault says so."""
    view = PodResources(Path("/nowhere")).view()
    assert (view.known, view.live, [fault.incomplete for fault in view.faults]) == (False, False, [True])


@pytest.mark.fault(36)
async def test_a_kubelet_that_starts_anew_is_met_at_once(socket: Path) -> None:
    """Killed and started on a new socket: a fault reports it, the allocations stay, and the new kubelet is asked."""
    kubelet = FakeKubelet(socket, listed=listed("train"), allocatable=offered(f"{UUID}::0"))
    source = PodResources(socket, interval=0.01)
    async with kubelet:
        running = asyncio.create_task(source.run())
        await until(lambda: source.view().live)
    await until(lambda: not source.view().live)
    away = source.view()
    assert [fault.reason for fault in away.faults] == ["kubelet_away"]
    assert [holding.pod for holding in away.holdings] == ["train"]
    kubelet.answer(listed=listed())
    async with kubelet:
        await until(lambda: source.view().live)
        assert [(holding.pod, holding.remembered) for holding in source.view().holdings] == [("train", True)]
        kubelet.answer(listed=listed("train"))
        await until(lambda: [holding.remembered for holding in source.view().holdings] == [False])
    running.cancel()


async def test_a_restart_between_two_questions_is_noticed(socket: Path) -> None:
    """No question found the kubelet away. Its new socket shows that the short list is of a kubelet just started."""
    kubelet = FakeKubelet(socket, listed=listed("train", "gone"), allocatable=offered())
    source = PodResources(socket)
    async with kubelet:
        await source.ask()
    kubelet.answer(listed=listed())
    async with kubelet:
        await source.ask()
        assert [(holding.pod, holding.remembered) for holding in source.view().holdings] == [
            ("train", True),
            ("gone", True),
        ]
        source.keep_only({("ml", "train")})
        assert [holding.pod for holding in source.view().holdings] == ["train"]
        await source.ask()
        assert [holding.pod for holding in source.view().holdings] == ["train"]


async def test_the_same_kubelets_short_list_is_believed(socket: Path) -> None:
    """A pod that ended is gone with the next answer, when the kubelet has been the same throughout."""
    async with FakeKubelet(socket, listed=listed("train", "other"), allocatable=offered()) as kubelet:
        source = PodResources(socket)
        await source.ask()
        kubelet.answer(listed=listed("other"))
        await source.ask()
        assert [holding.pod for holding in source.view().holdings] == ["other"]


async def test_a_kubelet_that_hung_is_still_the_same(socket: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A pod that ended while the kubelet did not answer is gone with its next answer: its list is no new kubelet's."""
    async with FakeKubelet(socket, listed=listed("train", "other"), allocatable=offered()) as kubelet:
        source = PodResources(socket, deadline=5)
        await source.ask()
        kubelet.answer(listed=None)
        with monkeypatch.context() as during:
            during.setattr(source, "_deadline", 0.2)
            await source.ask()
        assert not source.view().live
        kubelet.answer(listed=listed("other"))
        await source.ask()
        assert [(holding.pod, holding.remembered) for holding in source.view().holdings] == [("other", False)]


@pytest.mark.fault(36)
async def test_a_hung_kubelet_holds_nobody(socket: Path) -> None:
    """While the kubelet hangs the view is had at once, and the end of the daemon does not wait for an answer."""
    async with FakeKubelet(socket, listed=None) as kubelet:
        source = PodResources(socket, deadline=600)
        running = asyncio.create_task(source.run())
        await until(lambda: bool(kubelet.asked))
        assert not source.view().known
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(running, 5)


async def test_no_connection_is_left(socket: Path) -> None:
    """After good answers, refusals and deadlines there are as many open files as before."""
    async with FakeKubelet(socket, listed=listed("train"), allocatable=offered()) as kubelet:
        source = PodResources(socket, deadline=0.05)
        await source.ask()
        await asyncio.sleep(0)
        before = open_files()
        for answer in (listed("train"), GRPCError(Status.UNKNOWN, "no"), b"\xff", None) * 5:
            kubelet.answer(listed=answer)
            await source.ask()
        await until(lambda: open_files() <= before)


ASK = """
import asyncio, pathlib, sys
from exporter.kube.pod_resources import ask
capabilities = [line for line in pathlib.Path("/proc/self/status").read_text().splitlines() if line.startswith("Cap")]
view = asyncio.run(ask(pathlib.Path(sys.argv[1])))
print(capabilities, sorted(view.pods))
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="root is needed to give up root's capabilities")
@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (Debian's util-linux) is not here")
async def test_root_without_capabilities_may_ask(socket: Path, tmp_path: Path) -> None:
    """The daemon is uid 0 with all capabilities dropped: folder and socket belong to root, and that is enough."""
    bare = ["--inh-caps=-all", "--ambient-caps=-all", "--bounding-set=-all"]
    async with FakeKubelet(socket, listed=listed("train"), allocatable=offered()):
        socket.parent.chmod(0o750)  # as the kubelet makes them
        socket.chmod(0o755)  # noqa: ASYNC240
        process = await asyncio.create_subprocess_exec(
            "setpriv", *bare, sys.executable, "-c", ASK, str(socket), cwd=ROOT, stdout=subprocess.PIPE
        )
        output, _ = await process.communicate()
    assert process.returncode == 0
    assert len(re.findall(r"Cap(?:Inh|Prm|Eff|Bnd|Amb):\\t0{16}'", output.decode())) == 5
    assert output.decode().endswith("[('ml', 'train')]\n")


def test_generated_code_is_that_of_its_proto() -> None:
    """Every message and field of the .proto is in the committed code under its number, and no other."""
    text = (ROOT / "exporter" / "kube" / "proto" / "pod_resources.proto").read_text()
    written = {
        (message, name, int(number))
        for message, body in re.findall(r"^message (\w+) \{(.*?)\}", text, re.DOTALL | re.MULTILINE)
        for name, number in re.findall(r"(\w+) = (\d+);", body)
    }
    generated = {
        (message, field.name, field.number)
        for message, descriptor in api.DESCRIPTOR.message_types_by_name.items()
        for field in descriptor.fields
    }
    assert generated == written
    assert len(generated) == 17


def test_generated_code_loads_with_the_lowest_protobuf_that_is_allowed() -> None:
    """Protobuf refuses generated code newer than itself: ours is not newer than pyproject.toml's lower bound."""
    project = (ROOT / "pyproject.toml").read_text()
    lowest = re.search(r'"protobuf>=(\d+)\.(\d+)"', project)
    code = (ROOT / "exporter" / "kube" / "proto" / "pod_resources_pb2.py").read_text()
    generated = re.search(r"# Protobuf Python Version: (\d+)\.(\d+)\.", code)
    assert lowest is not None
    assert generated is not None
    assert tuple(map(int, generated.groups())) <= tuple(map(int, lowest.groups()))
