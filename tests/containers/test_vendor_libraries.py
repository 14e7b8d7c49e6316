"""
Vendors' libraries on real containers: real processes, namespaces and cgroups; the libraries are small C fakes.

The code that finds the container of such a library's number is the same as for NVIDIA's. Here it runs with numbers
that the kernel gave. The device nodes are made with mknod, with no driver behind them: processes hold them open by
O_PATH (`holder.c`), which shows a reader the same link and the same number.
"""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from containers.fixtures import RunPod
from containers.pods import Bed, Container
from containers.specs import ContainerSpec, HostPath
from daemon.running import Daemon, until
from libraries.build import HOLDER
from libraries.fake import FakeDevice, FakeLibrary, FakeProcess, GiB
from libraries.fixtures import libraries_build
from scraped import series

__all__ = ["libraries_build"]

pytestmark = pytest.mark.containers

Held = Mapping[tuple[str, ...], float]
"""(vendor, pod) to bytes."""

NPU = "E0F4EE64-802061B1-6A691492-89528485-104301E3"
MLU = "00000000-0000-0000-0000-000012345678"
GPU = "GPU-3fd4ee8f-169c-6d31-f9dc-c2a90a441f1b"
PPU = "GPU-019e2226-4211-0208-0000-000000ab261d"
DCUS = ("2a4f00c1", "2a4f00c2")
HYGON = tuple(f"hygon-00000000{dcu}" for dcu in DCUS)
UNPROVEN = {
    "ixml": ("iluvatar", "iluvatar0", "3fd4ee8f-169c-6d31-f9dc-c2a90a441f1a"),
    "efml-uuid": ("enflame", "gcu0", "T6R2312A50203"),
    "mxsml": ("metax", "mxcd", GPU),
    "xpuml": ("kunlunxin", "xpu0", "02K00Y6217V000X7"),
    "hgml": ("t-head", "alixpu0", PPU),
}
"""Libraries whose numbers are to be proven: the vendor, a node that its processes have open, and a device's name."""
MTT, RENDER = "mtt-3fd4ee8f", "dri/renderD128"
EXPERIMENTAL = 240
"""Major numbers from here to 254 are no driver's of their own (the kernel's devices.txt)."""


class Stage:
    """A host with device nodes and libraries, containers that see the nodes, and the daemon over all."""

    def __init__(self, bed: Bed, run_pod: RunPod, build: Path, folder: Path, stack: ExitStack) -> None:
        self.host = folder / "host"
        self._bed, self._run_pod, self._build, self._stack = bed, run_pod, build, stack
        self._state = folder / "fake-libraries"
        self._libraries: list[FakeLibrary] = []
        self._nodes: dict[str, Path] = {}
        self.host.mkdir()

    def library(self, variant: str, *nodes: str) -> FakeLibrary:
        """Install a library, with nodes below /dev; before the pods."""
        for name in nodes:
            self._nodes[name] = self.host / "dev" / name
            self._nodes[name].parent.mkdir(parents=True, exist_ok=True)
            number = os.makedev(EXPERIMENTAL + len(self._nodes), 0)
            os.mknod(self._nodes[name], stat.S_IFCHR | 0o666, number)
        self._libraries.append(FakeLibrary(self._state, self._build, variant))
        return self._libraries[-1]

    def pod(self, name: str) -> Container:
        """Start a pod of one container that has the nodes, and none of them open."""
        nodes = [HostPath(path, at=f"/dev/{node}") for node, path in self._nodes.items()]
        holder = HostPath(self._build / HOLDER, at="/bin/holder", readonly=True)
        return self._run_pod(ContainerSpec("main", mounts=[holder, *nodes]), name=name).containers["main"]

    def daemon(self) -> Daemon:
        """Start the daemon on what there is."""
        flags, env = self._started()
        return self._stack.enter_context(Daemon(*flags, "--sampling.interval=500ms", "--log.format=json", env=env))

    def check(self) -> str:
        """Run `gpusteward check` on what there is; what it prints, in one line."""
        flags, env = self._started()
        command = [str(Path(sys.executable).with_name("gpusteward")), "check", "--web.listen-address=127.0.0.1:0"]
        everything = {**os.environ, "NODE_NAME": "test-node", **env}
        done = subprocess.run([*command, *flags], env=everything, capture_output=True, text=True, check=True)
        return " ".join(done.stdout.split())

    def _started(self) -> tuple[tuple[str, ...], dict[str, str]]:
        names = self._bed.write_inventory(self.host / "names.json")
        devices = ",".join(library.name for library in self._libraries)
        paths = ":".join(str(library.path.parent) for library in self._libraries)
        return (
            (f"--devices={devices}", f"--node.host-root={self.host}", f"--names.file={names}"),
            {"LD_LIBRARY_PATH": paths, "FAKE_LIBRARIES": str(self._state)},
        )


@pytest.fixture
def stage(bed: Bed, run_pod: RunPod, tmp_path: Path, libraries_build: Path) -> Iterator[Stage]:
    """A host without any library."""
    with ExitStack() as stack:
        yield Stage(bed, run_pod, libraries_build, tmp_path, stack)


def inside(pid: int) -> int:
    """Read the number that a process has in its own namespace."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("NSpid:")]
    return int(line.split()[-1])


def held(page: str) -> Held:
    """Read who holds what of which vendor's device."""
    vendors = {uuid: vendor for vendor, uuid in series(page, "gpu_info", "vendor", "uuid")}
    found = series(page, "container_memory_used_bytes", "uuid", "pod")
    return {(vendors[uuid], pod): bytes_ for (uuid, pod), bytes_ in found.items()}


def page_with(daemon: Daemon, wanted: Held, what: str, *, used: float | None = None) -> str:
    """Wait for a page on which only these hold memory; `used`: of each device whose numbers want proof."""

    def there() -> str | None:
        page = daemon.get("/metrics")[1]
        of_devices = series(page, "device_memory_used_bytes", "uuid")
        now = {of_devices.get((uuid,)) for *_, uuid in UNPROVEN.values()}
        return page if held(page) == wanted and (used is None or now == {used}) else None

    return until(there, what, daemon)


def faults(snapshot: Mapping[str, Any]) -> dict[str, str]:
    """Read the faults: each `subject` with its reason."""
    return {fault["subject"]: fault["reason"] for fault in snapshot["faults"]}


def test_an_ascend_and_a_cambricon_by_container(stage: Stage) -> None:
    """
    Two containers on the devices of two vendors: each has what its processes hold, those that it forked among them.

    No memory is unattributed, and what ends is gone.
    """
    dcmi, cndev = stage.library("dcmi"), stage.library("cndev")
    one, two = stage.pod("one"), stage.pod("two")
    child = one.spawn("/bin/sleep", "1000")

    def write(npu: Mapping[int, int], mlu: Mapping[int, int]) -> None:
        for library, uuid, processes in ((dcmi, NPU, npu), (cndev, MLU, mlu)):
            entries = tuple(FakeProcess(pid, gib * GiB) for pid, gib in processes.items())
            free = 32 * GiB - sum(entry.memory for entry in entries)
            library.write(FakeDevice(0, uuid, free=free, processes=entries))

    write({one.pid: 2, child: 1, two.pid: 4}, {two.pid: 8})
    daemon = stage.daemon()
    wanted: Held = {("huawei", "one"): 3 * GiB, ("huawei", "two"): 4 * GiB, ("cambricon", "two"): 8 * GiB}
    page = page_with(daemon, wanted, "both containers")
    assert series(page, "container_processes", "pod", "uuid")["one", NPU] == 2
    assert set(series(page, "device_memory_unattributed_bytes", "uuid").values()) == {0}
    two.stop()
    write({one.pid: 2, child: 1}, {})
    page_with(daemon, {("huawei", "one"): 3 * GiB}, "what ended to be gone")
    assert daemon.stop()[0] == 0


def test_numbers_that_want_proof_and_those_of_hygon(stage: Stage) -> None:
    """
    Five libraries at once: no container is named while one number is of another namespace, or of a process that has no
    device open. Each is named as soon as all numbers are of processes that have it open.

    Hygon's numbers need no such proof. A process on two of its devices holds an unknown part of each, which is not 0.
    """
    libraries = {variant: stage.library(variant, node) for variant, (_, node, _) in UNPROVEN.items()}
    dcu = stage.library("rsmi")
    (stage.host / "proc").symlink_to("/proc")
    (stage.host / "sys/module/hycu").mkdir(parents=True)
    pods = {name: stage.pod(name) for name in ("one", "two")}
    gib = {"one": 3, "two": 5}
    opened = {
        (variant, name): pod.spawn("/bin/holder", f"/dev/{node}")
        for variant, (_, node, _) in UNPROVEN.items()
        for name, pod in pods.items()
    }

    def write(variant: str, numbers: Mapping[str, tuple[int, int]], used: int) -> None:
        """`numbers`: of each pod's process, and the host's where the library tells it (Kunlunxin)."""
        entries = tuple(FakeProcess(pid, gib[name] * GiB, host) for name, (pid, host) in numbers.items())
        uuid = UNPROVEN[variant][2]
        libraries[variant].write(FakeDevice(0, uuid, free=(32 - used) * GiB, processes=entries))

    for variant in libraries:
        write(variant, {name: (inside(opened[variant, name]), 0) for name in pods}, used=8)
    first, second = pods["one"].pid, pods["two"].pid
    dcu.write(
        FakeDevice(0, DCUS[0], free=24 * GiB, processes=(FakeProcess(first, 2 * GiB), FakeProcess(second, 3 * GiB))),
        FakeDevice(1, DCUS[1], pci="0000:3c:00.0", processes=(FakeProcess(second, 4 * GiB),)),
    )
    hygon: Held = {("hygon", "one"): 2 * GiB}
    doubtful = {uuid for *_, uuid in UNPROVEN.values()}

    def doubted(snapshot: Mapping[str, Any]) -> set[str]:
        return {subject for subject, reason in faults(snapshot).items() if reason == "pids_unproven"}

    daemon = stage.daemon()

    for used, what in ((8, "numbers of other namespaces"), (9, "a process without a device")):
        page = page_with(daemon, hygon, f"nobody on {what}", used=used * GiB)
        snapshot = daemon.until(lambda s: s if doubted(s) == doubtful else None, what)
        assert {c["uuid"] for c in snapshot["containers"]} <= set(HYGON)
        for part in ("attributed", "ghost", "host", "unattributed"):
            assert not series(page, f"device_memory_{part}_bytes", "uuid").keys() & {(uuid,) for uuid in doubtful}
        for variant in libraries:
            write(variant, {"one": (opened[variant, "one"], 0), "two": (second, 0)}, used=9)
    processes = series(page, "container_processes", "uuid", "pod")
    assert processes == {(HYGON[0], "one"): 1, (HYGON[0], "two"): 1, (HYGON[1], "two"): 1}
    assert set(series(page, "source_up", "source").values()) == {1}

    def tell(name: str) -> None:
        for variant in libraries:
            pids = {pod: opened[variant, pod] for pod in gib if name in ("both", pod)}
            knows = variant == "xpuml"
            write(variant, {pod: (inside(pid), pid) if knows else (pid, 0) for pod, pid in pids.items()}, used=10)

    tell("both")
    everybody: Held = {(vendor, name): size * GiB for vendor, *_ in UNPROVEN.values() for name, size in gib.items()}
    page = page_with(daemon, {**hygon, **everybody}, "everybody", used=10 * GiB)
    unattributed = series(page, "device_memory_unattributed_bytes", "uuid")
    assert {unattributed[uuid,] for uuid in doubtful} == {2 * GiB}
    daemon.until(lambda s: not doubted(s), "no doubt left")
    pods["two"].stop()
    tell("one")
    dcu.write(FakeDevice(0, DCUS[0], processes=(FakeProcess(first, 2 * GiB),)))
    one: Held = {entry: size for entry, size in everybody.items() if entry[1] == "one"}
    page_with(daemon, {**hygon, **one}, "what ended to be gone")
    assert daemon.stop()[0] == 0


def test_of_a_moore_threads_the_holders_are_known(stage: Stage) -> None:
    """
    A process that has the device open is on it, with bytes that are unknown and not 0, as `check` says. The kernel's
    processes are the real ones, of a node that has few.

    While one process may not be looked at, the holders are unknown, and the fault names that process.
    """
    library = stage.library("mtml", RENDER)
    one, two = stage.pod("one"), stage.pod("two")
    holder, idle = one.spawn("/bin/holder", f"/dev/{RENDER}"), two.spawn("/bin/sleep", "1000")
    library.write(FakeDevice(0, MTT, node=f"/dev/{RENDER}"))
    proc = stage.host / "proc"
    proc.mkdir()
    for pid in (one.pid, holder, two.pid, idle):
        (proc / str(pid)).symlink_to(f"/proc/{pid}")
    for name in ("self", "1"):  # init of a machine may be more than root may look at
        (proc / name).symlink_to("/proc/self")
    hidden = proc / "4194304"
    hidden.mkdir()
    (hidden / "fd").write_text("")  # an error that is not "gone"

    daemon = stage.daemon()
    daemon.until(lambda s: faults(s) == {MTT: "nodes_unseen"}, "the fault")
    assert hidden.name in daemon.snapshot()["faults"][0]["message"]
    page = daemon.get("/metrics")[1]
    assert series(page, "container_processes", "uuid") == {}
    (hidden / "fd").unlink()
    hidden.rmdir()
    daemon.until(lambda s: faults(s) == {} and s["containers"], "the holder")
    page = daemon.get("/metrics")[1]
    assert series(page, "container_processes", "uuid", "pod") == {(MTT, "one"): 1}
    assert held(page) == {}
    assert series(page, "device_memory_used_bytes", "uuid") == {(MTT,): 8 * GiB}
    assert series(page, "device_memory_attributed_bytes", "uuid") == {}
    assert "always unknown: memory by process, and so by container" in stage.check()
    assert daemon.stop()[0] == 0
