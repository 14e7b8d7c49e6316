"""Pods of the container bed look to the kernel, and to the runtime, as a kubelet's do.

In: a machine with root, containerd and runc. Out: proof, for each shape that the tests of the daemon stand on.
"""

from __future__ import annotations

import json
import re
import subprocess
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from containers.cgroupfs import Ledger, below, enter_and_read, hierarchies, kubelet_paths, move, paths, start_ticks
from containers.containerd import BedError
from containers.cri import CriError
from containers.fixtures import RunPod, wait_until
from containers.pods import Bed
from containers.specs import ContainerSpec, HostPath, PidMode, Qos

pytestmark = pytest.mark.containers

HEX64 = re.compile(r"[0-9a-f]{64}")
OTHER_POD = "a2830d0d-b0f0-4ff0-81b5-0ee4e299cf80"
OTHER_CONTAINER = "0123456789abcdef" * 4


def attempts(bed: Bed, uid: str) -> dict[str, int]:
    """Container id → attempt, of all containers of a pod that the runtime knows, dead ones included."""
    found = bed.cri.list_containers(labels={"io.kubernetes.pod.uid": uid})
    return {container.id: container.metadata.attempt for container in found}


@pytest.fixture
def ledger(bed: Bed) -> Iterator[Ledger]:
    """The bed's own list of cgroups; v2 pods that a test made are removed after it."""
    cgroups = bed.containerd.cgroups
    before = set(cgroups.paths("own"))
    yield cgroups
    for path in cgroups.paths("own"):
        if path not in before:
            cgroups.remove(path)


@pytest.fixture
def process() -> Iterator[subprocess.Popen[bytes]]:
    """A process of no container."""
    with subprocess.Popen(["sleep", "600"]) as running:
        yield running
        running.kill()


@pytest.mark.parametrize(
    ("qos", "tier"), [(Qos.GUARANTEED, ""), (Qos.BURSTABLE, "/burstable"), (Qos.BESTEFFORT, "/besteffort")]
)
def test_a_pod_has_the_kubelets_cgroups(run_pod: RunPod, qos: Qos, tier: str) -> None:
    """A container is at /kubepods/<qos>/pod<uid>/<id> in every hierarchy, that of a guaranteed pod without <qos>."""
    pod = run_pod("main", "side", qos=qos)
    assert pod.containers.keys() == {"main", "side"}
    for container in pod.containers.values():
        assert HEX64.fullmatch(container.id)
        assert kubelet_paths(container.pid) == {f"/kubepods{tier}/pod{pod.uid}/{container.id}"}
        assert container.pid in container.pids
    assert pod.containers["main"].id != pod.containers["side"].id


def test_a_static_pod_may_have_a_short_uid(run_pod: RunPod) -> None:
    """A uid of 32 hex digits, as static pods have, is taken as given."""
    uid = uuid.uuid4().hex
    pod = run_pod("main", uid=uid)
    assert kubelet_paths(pod.containers["main"].pid) == {f"/kubepods/burstable/pod{uid}/{pod.containers['main'].id}"}


def test_a_restart_gives_a_new_container(run_pod: RunPod, bed: Bed) -> None:
    """A restarted container keeps its name, pod and sandbox, and has another id and another process."""
    pod = run_pod("main")
    main = pod.containers["main"]
    sandbox, old_id, old_pid = pod.sandbox_id, main.id, main.pid
    new_id = main.restart()
    assert new_id == main.id != old_id
    assert start_ticks(old_pid) is None
    assert kubelet_paths(main.pid) == {f"{pod.cgroup}/{new_id}"}
    assert pod.sandbox_id == sandbox
    listed = attempts(bed, pod.uid)
    assert listed == {old_id: 0, new_id: 1}, "the last dead container stays in the list"
    third = main.restart()
    listed = attempts(bed, pod.uid)
    assert listed == {new_id: 1, third: 2}, "earlier ones do not"


def test_exec_is_in_the_containers_cgroup(run_pod: RunPod) -> None:
    """What is executed in a container has the container's cgroup, and its output and exit code come back."""
    main = run_pod("main").containers["main"]
    pid = main.spawn("sleep", "600")
    assert kubelet_paths(pid) == kubelet_paths(main.pid) == {main.cgroup}
    assert pid in main.pids
    done = main.exec("sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.stdout, done.stderr, done.exit_code) == ("out\n", "err\n", 3)


def test_a_container_gets_its_environment_and_mounts(run_pod: RunPod, tmp_path: Path) -> None:
    """Environment variables arrive, and a folder of the host is shared both ways unless it is read-only."""
    (tmp_path / "from-host").write_text("hello")
    spec = ContainerSpec(
        "main",
        env={"NVIDIA_VISIBLE_DEVICES": "GPU-1::0"},
        mounts=[HostPath(tmp_path, at="/state"), HostPath(tmp_path, at="/fixed", readonly=True)],
    )
    main = run_pod(spec).containers["main"]
    done = main.exec("sh", "-c", 'cat /state/from-host; echo "$NVIDIA_VISIBLE_DEVICES" > /state/from-container')
    assert done.stdout == "hello"
    assert (tmp_path / "from-container").read_text() == "GPU-1::0\n"
    assert main.exec("touch", "/fixed/x").exit_code != 0


@pytest.mark.parametrize("pid_mode", PidMode)
def test_pid_namespaces(run_pod: RunPod, pid_mode: PidMode) -> None:
    """A container is in its own pid namespace, in its pod's, or in the host's, as asked."""
    pod = run_pod("main", "side", pid_mode=pid_mode)
    pids = ["self", *(container.pid for container in pod.containers.values())]
    host, main, side = (Path(f"/proc/{pid}/ns/pid").readlink() for pid in pids)
    expected = {PidMode.CONTAINER: (False, False), PidMode.POD: (False, True), PidMode.NODE: (True, True)}
    assert (main == host, main == side) == expected[pid_mode]


def test_the_inventory_is_what_runs(run_pod: RunPod, bed: Bed, tmp_path: Path) -> None:
    """The inventory file lists the running containers by name and id: no sandbox, no dead one, no old id."""
    pod = run_pod("main", "side", namespace="team-b", name="train")
    pod.containers["side"].stop()
    pod.containers["main"].restart()
    written = json.loads(bed.write_inventory(tmp_path / "inventory.json").read_text())
    assert [entry for entry in written if entry["pod_uid"] == pod.uid] == [
        {
            "namespace": "team-b",
            "pod": "train",
            "pod_uid": pod.uid,
            "container": "main",
            "container_id": pod.containers["main"].id,
        }
    ]


def test_a_container_that_ends_says_why(run_pod: RunPod) -> None:
    """The pid of a container that does not run is an error with its exit code and its last words, not a 0."""
    main = run_pod(ContainerSpec("main", command=["sh", "-c", "echo no GPU here; exit 7"])).containers["main"]
    wait_until(lambda: not main.running, what="the container has ended")
    assert main.status.exit_code == 7
    with pytest.raises(BedError, match=r"(?s)\(7\).*no GPU here"):
        _ = main.pid


def test_half_a_pod_is_removed(bed: Bed) -> None:
    """A pod whose second container cannot be made leaves neither the first one, nor a sandbox, nor a cgroup."""
    uid = str(uuid.uuid4())
    with pytest.raises(CriError, match="no-such-image"):
        bed.run_pod("team-a", "job", ["main", ContainerSpec("side", image="gpusteward.test/no-such-image:1")], uid=uid)
    assert uid not in {sandbox.metadata.uid for sandbox in bed.cri.list_pod_sandboxes()}
    assert not [root for root in hierarchies().all if below(root, f"/kubepods/burstable/pod{uid}").exists()]


@pytest.mark.parametrize(
    "child",
    [
        pytest.param(f"docker/{OTHER_CONTAINER}", id="docker-in-a-pod"),
        pytest.param(f"kubepods/besteffort/pod{OTHER_POD}/{OTHER_CONTAINER}", id="kind-in-a-pod"),
        pytest.param(
            f"kubepods-pod{OTHER_POD.replace('-', '_')}.slice/cri-containerd-{OTHER_CONTAINER}.scope", id="hostile-name"
        ),
    ],
)
def test_a_nested_cgroup_is_below_the_container(run_pod: RunPod, ledger: Ledger, child: str) -> None:
    """A process can be put into a cgroup of any name below its container's, and goes with its pod."""
    pod = run_pod("main")
    main = pod.containers["main"]
    pid = main.spawn("sleep", "600")
    path = ledger.nest(main.cgroup, child, pid)
    assert kubelet_paths(pid) == {path} == {f"{main.cgroup}/{child}"}
    assert kubelet_paths(main.pid) == {main.cgroup}
    assert pid in main.pids
    pod.stop()
    assert start_ticks(pid) is None
    assert not [root for root in hierarchies().all if below(root, pod.cgroup).exists()]


def test_cgroup_v2_from_the_host_and_from_a_private_namespace(ledger: Ledger, process: subprocess.Popen[bytes]) -> None:
    """The `0::` line of systemd and containerd is real, and relative for a reader with a private cgroup namespace."""
    uid, other = str(uuid.uuid4()), str(uuid.uuid4())
    pod, scope = f"kubepods-burstable-pod{uid.replace('-', '_')}.slice", f"cri-containerd-{OTHER_CONTAINER}.scope"
    folder = ledger.scope_v2(uid, OTHER_CONTAINER)
    move(process.pid, folder)

    def unified(text: str) -> str:
        return next(line.removeprefix("0::") for line in text.splitlines() if line.startswith("0::"))

    assert paths(process.pid)[""] == f"/kubepods.slice/kubepods-burstable.slice/{pod}/{scope}"
    of_another_pod = ledger.scope_v2(other, "f" * 64)
    assert unified(enter_and_read(of_another_pod, process.pid)) == f"/../../{pod}/{scope}"
    of_the_same_pod = ledger.scope_v2(uid, "f" * 64)
    assert unified(enter_and_read(of_the_same_pod, process.pid)) == f"/../{scope}"
    assert unified(enter_and_read(folder, process.pid)) == "/"


def test_cgroup_v2_of_a_guaranteed_pod_of_cri_o(ledger: Ledger, process: subprocess.Popen[bytes]) -> None:
    """The other shapes that systemd makes: a guaranteed pod is directly in kubepods.slice, CRI-O has its own prefix."""
    uid = str(uuid.uuid4())
    move(process.pid, ledger.scope_v2(uid, OTHER_CONTAINER, qos="guaranteed", runtime="crio"))
    expected = f"/kubepods.slice/kubepods-pod{uid.replace('-', '_')}.slice/crio-{OTHER_CONTAINER}.scope"
    assert paths(process.pid)[""] == expected
