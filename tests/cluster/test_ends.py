"""How beds end: as they should, by failure, by SIGKILL; and what the next one then finds."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cluster import build, leftovers, requirements
from cluster.bed import Bed
from cluster.fixtures import require
from cluster.manifests import pod, pod_spec
from cluster.node import FOLDERS, SETTINGS
from cluster.processes import PORTS, StartError, free_port, listens
from containers.cgroupfs import hierarchies
from patience import PATIENCE

pytestmark = pytest.mark.cluster

TESTS = Path(__file__).parents[1]

# A bed in a process of its own, which can be killed. It says its folder when it is ready.
OWNER = """
import json, signal, sys
from cluster.bed import Bed
from cluster.manifests import pod, pod_spec
from patience import PATIENCE
bed = Bed(node=sys.argv[1] == "node")
bed.start()
if sys.argv[1] == "node":
    bed.kubectl("create", "-f", "-", stdin=json.dumps(pod("train", pod_spec(resources={"nvidia.com/gpu": 1}))))
    bed.kubectl("wait", "--for=condition=Ready", "pod/train", f"--timeout={PATIENCE:.0f}s")
print("ready", bed.token, bed.folder, flush=True)
signal.pause()
"""


@pytest.fixture
def api_only() -> None:
    """This machine can start an API server."""
    require(requirements.missing(node=False))


@pytest.fixture
def whole() -> None:
    """This machine can start a node."""
    require(requirements.missing(node=True))


def until(condition: Callable[[], bool], what: str) -> None:
    """Return when it holds. Raises TimeoutError after 20 s."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.05)


def settings() -> dict[str, str]:
    """The kernel settings that a node's programs write."""
    return {name: Path("/proc/sys", name).read_text() for name in SETTINGS if Path("/proc/sys", name).exists()}


def machines_own() -> set[str]:
    """Those of a node's folders that exist here and were made by no bed (another run's may live just now)."""
    return {place for place in FOLDERS if Path(place).exists()} - leftovers.made_for_living()


def traces(token: str, folder: Path) -> list[str]:
    """Everything on this machine that is of that bed: processes, mounts, cgroups, interfaces, files."""
    pid, _, serial = token.split("-")
    interface = f"gpu{pid}n{serial}"
    commands = [
        file.parent.name for file in Path("/proc").glob("[0-9]*/cmdline") if str(folder).encode() in _read(file)
    ]
    return [
        *(
            f"process {number} ({_read(Path(f'/proc/{number}/cmdline'))!r})"
            for number in sorted(leftovers.marked(token) | set(map(int, commands)))
        ),
        *(f"mount {line}" for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(folder) in line),
        *(f"cgroup {path}" for root in hierarchies().all for path in root.glob(f"{interface}*")),
        *(f"interface {path.name}" for path in Path("/sys/class/net").glob(f"{interface}*")),
        *(f"folder {path}" for path in (folder, build.cache() / "beds" / f"{token}.json") if path.exists()),
    ]


def _read(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:  # it ended meanwhile
        return b""


@contextmanager
def owner(kind: str) -> Iterator[tuple[subprocess.Popen[str], str, Path]]:
    """A process with a bed that is ready: its handle, the bed's token and folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", OWNER, kind],
        env={**os.environ, "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        with process.stdout:
            said = next((line for line in process.stdout if line.startswith("ready ")), None)
        assert said, "it ended before its bed was ready; its error is above"
        _, token, folder = said.split()
        yield process, token, Path(folder)
    finally:
        process.kill()
        process.wait()


@pytest.mark.usefixtures("whole")
def test_a_bed_leaves_nothing_behind() -> None:
    """After stop() no process, mount, cgroup, interface, file of it exists, and nothing had to be swept up.

    While it ran, no kernel setting of the machine changed, though the kubelet set several: its copies say so.
    """
    before, own = settings(), machines_own()
    bed = Bed()
    bed.start()
    try:
        bed.kubectl("create", "-f", "-", stdin=json.dumps(pod("train", pod_spec(resources={"nvidia.com/gpu": 1}))))
        bed.kubectl("wait", "--for=condition=Ready", "pod/train", f"--timeout={PATIENCE:.0f}s")
        token, folder = bed.token, bed.folder
        assert {line.split()[0] for line in traces(token, folder)} >= {"process", "cgroup", "interface", "folder"}
        assert (folder / FOLDERS["/var/lib/kubelet"] / "pod-resources" / "kubelet.sock").exists()
        assert settings() == before
        copies = {name: (folder / "settings" / name).read_text().strip() for name in before}
        assert (copies["vm/overcommit_memory"], copies["kernel/panic"]) == ("1", "10")
    finally:
        swept = bed.stop()
    assert swept == []
    assert traces(token, folder) == []
    assert settings() == before
    assert machines_own() == own


@pytest.mark.usefixtures("api_only")
def test_a_taken_port_is_named_and_nothing_stays() -> None:
    """A port that another program has is refused by its number, before anything was started."""
    with socket.create_server(("127.0.0.1", free_port())) as other:
        port = other.getsockname()[1]
        bed = Bed(node=False, port=port)
        with pytest.raises(StartError, match=rf"port 127\.0\.0\.1:{port}, wanted for the API server, is taken"):
            bed.start()
    folder = Path(tempfile.gettempdir(), f"gpusteward-cluster-{bed.token}")
    assert traces(bed.token, folder) == []
    assert not list(folder.parent.glob(f"*{bed.token}*"))


def test_free_ports_are_outside_of_what_the_kernel_hands_out() -> None:
    """No program's outgoing connection takes a port between our look at it and the bind of the port's program."""
    low, _ = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert free_port() in PORTS
    assert PORTS.stop <= min(low, 30000)


def test_a_free_port_stays_its_askers() -> None:
    """Its program may listen there, and again after a restart; another that looks for a port does not get this one."""
    port = free_port()
    for _ in range(2):
        with socket.create_server(("127.0.0.1", port)):
            assert listens(port)
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))
    assert not listens(port)


@pytest.mark.usefixtures("api_only")
def test_a_part_that_dies_is_named_with_its_last_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """When a program ends instead of getting ready, the error has its name, status and log; what ran is ended."""
    broken = tmp_path / "kube-apiserver"
    broken.write_text("#!/bin/sh\necho no good today >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    bed = Bed(node=False)
    with pytest.raises(StartError, match=r"(?s)kube-apiserver ended with 3:.*no good today"):
        bed.start()
    assert leftovers.marked(bed.token) == set()
    assert not list(Path(os.environ.get("TMPDIR", "/tmp")).glob(f"*{bed.token}*"))


@pytest.mark.usefixtures("api_only")
def test_an_api_server_that_crashed_comes_back_with_what_it_had() -> None:
    """Killed, it does not answer; started again on its port, it has every object of before."""
    with Bed(node=False) as bed:
        bed.kubectl("create", "configmap", "kept")
        bed.control_plane.kill_api_server()
        with pytest.raises(subprocess.CalledProcessError):
            bed.kubectl("get", "--raw", "/readyz")
        bed.control_plane.start_api_server()
        assert bed.kubectl("get", "configmap", "kept", "-o", "name") == "configmap/kept\n"
        assert len(leftovers.marked(bed.token)) == 3
    assert leftovers.marked(bed.token) == set()


@pytest.mark.usefixtures("api_only")
def test_the_next_bed_removes_a_killed_one_and_says_so(capfd: pytest.CaptureFixture[str]) -> None:
    """SIGKILL of the process that runs a bed: its parts live on, until the next bed ends them and says which."""
    with owner("api") as (process, token, folder):
        process.kill()
        process.wait()
        assert len(leftovers.marked(token)) == 3  # etcd, the API server, the controller manager
        with Bed(node=False) as bed:
            assert bed.kubectl("get", "--raw", "/readyz") == "ok"
            said = "\n".join(bed.removed_at_start)
            assert traces(token, folder) == []
    for part in ("etcd", "kube-apiserver", "kube-controller", f"folder {folder}"):
        assert part in said
    assert f"left by a killed test bed, removed: folder {folder}" in capfd.readouterr().out


@pytest.mark.usefixtures("whole")
def test_a_killed_node_goes_with_its_containers() -> None:
    """The same for a whole node with a pod on a GPU: kubelet, shims, containers, mounts, cgroups, interface."""
    with owner("node") as (process, token, folder):
        process.kill()
        process.wait()
        left = traces(token, folder)
        assert {line.split()[0] for line in left} >= {"process", "cgroup", "interface", "folder"}
        said = "\n".join(leftovers.remove_stale())
        until(lambda: traces(token, folder) == [], f"{left} to be gone")
    for part in (
        "(etcd)",
        "(kubelet)",
        "(containerd)",
        "(containerd-shim)",
        "interface gpu",
        "cgroup ",
        f"folder {folder}",
    ):
        assert part in said
    assert leftovers.remove_stale() == []


@pytest.mark.usefixtures("api_only")
def test_a_living_bed_is_not_swept_up() -> None:
    """Another run's bed, whose process lives, is none of the next one's leftovers."""
    with owner("api") as (process, token, _):
        assert not any(token in line for line in leftovers.remove_stale())
        assert len(leftovers.marked(token)) == 3
        process.kill()
        process.wait()
        assert any(token in line for line in leftovers.remove_stale())


@pytest.mark.usefixtures("api_only")
def test_a_person_starts_and_stops_a_cluster(tmp_path: Path) -> None:
    """`python -m cluster` prints a kubeconfig that works, and `--stop` from elsewhere ends it and leaves nothing."""
    command = [sys.executable, "-m", "cluster"]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    log = tmp_path / "log"
    with log.open("w") as output:
        process = subprocess.Popen([*command, "--no-node"], env=environment, stdout=output, stderr=output)
    try:
        until(lambda: "The cluster runs" in log.read_text() or process.poll() is not None, "the cluster to run")
        found = re.search(r"KUBECONFIG=(\S+)", log.read_text())
        assert found, log.read_text()
        kubectl = [str(build.program("kubectl")), f"--kubeconfig={found[1]}", "get", "--raw", "/readyz"]
        assert subprocess.run(kubectl, capture_output=True, text=True, check=True).stdout == "ok"
        stopped = subprocess.run([*command, "--stop"], env=environment, capture_output=True, text=True, check=True)
        assert "ended 1" in stopped.stdout
        assert process.wait(timeout=PATIENCE) == 0
        assert not Path(found[1]).parent.exists()
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
            process.wait()
