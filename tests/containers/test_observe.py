"""
Processes → containers → accounts → metrics, on real containers: the numbers agree to the byte.

Each promise is tried with the daemon in the host's cgroup view, and in a private cgroup namespace. Every unprivileged
pod on cgroup v2 has such a namespace.
"""

from __future__ import annotations

import json
import os
import signal
import uuid
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from containers.fixtures import RunPod
from containers.observed import Held, agree, closes, container, held, import_workload, private_view, told
from containers.pods import Bed, Container, Pod
from containers.specs import ContainerSpec, Qos
from daemon.fixtures import StartDaemon
from daemon.running import Daemon
from driver.gpus import FakeComputeInstance, FakeGpuInstance
from driver.node import FakeNode, GiB, MiB, Workload, gpus, until
from scraped import series

pytestmark = pytest.mark.containers

LABELS = ("namespace", "pod", "container", "uuid")


@pytest.fixture(scope="module")
def image(bed: Bed, driver_build: Path, tmp_path_factory: pytest.TempPathFactory) -> Bed:
    """The bed, with the workload's image in it."""
    import_workload(bed, FakeNode(tmp_path_factory.mktemp("state"), driver_build), tmp_path_factory.mktemp("image"))
    return bed


class Stage:
    """A node on which pods run and a daemon looks at them."""

    def __init__(self, bed: Bed, node: FakeNode, run_pod: RunPod, start: Callable[..., Daemon], file: Path) -> None:
        self.bed, self.node, self._run_pod, self._start, self._file = bed, node, run_pod, start, file
        self._running: list[tuple[Container, Workload]] = []

    def pod(self, *asked: tuple[ContainerSpec, str], **words: Any) -> Pod:
        """Start a pod of workloads, wait until each did its commands, and tell the daemon the names."""
        pod = self._run_pod(*(spec for spec, _ in asked), **words)
        for spec, speaks_as in asked:
            workload = self.node.workload(speaks_as)
            workload.ready()
            self._running.append((pod.containers[spec.name], workload))
        self.names()
        return pod

    def names(self) -> None:
        """Write the names of what runs now, from the containers' CRI labels."""
        self.bed.write_inventory(self._file)

    def forget(self, pod: Pod) -> None:
        """Expect nothing more of this pod."""
        self._running = [(c, w) for c, w in self._running if c.pod is not pod]

    def daemon(self, *flags: str) -> Daemon:
        """Start the daemon in this test's view."""
        self.names()
        return self._start(f"--names.file={self._file}", "--node.host-root=/", *flags)

    def expected(self) -> Held:
        """Ask all workloads what they hold."""
        found: Held = {}
        for held_by, workload in self._running:
            for key, size in told(held_by, workload).items():
                found[key] = found.get(key, 0) + size
        return found

    def agree(self, daemon: Daemon, what: str) -> dict[str, Any]:
        """Wait until both sides say the same in a complete round, and see that the accounts close there."""
        snapshot = agree(daemon, self.expected, what)
        assert all(closes(snapshot)), snapshot["devices"]
        return snapshot

    def workload(self, pod: Pod, name: str = "main") -> Workload:
        """Find the workload in a container."""
        return next(w for c, w in self._running if c.pod is pod and c.spec.name == name)


@pytest.fixture(params=["host view", "private cgroup namespace"])
def stage(  # noqa: PLR0917  (fixtures are handed over by position)
    request: pytest.FixtureRequest,
    image: Bed,
    fake_node: FakeNode,
    run_pod: RunPod,
    start_daemon: StartDaemon,
    tmp_path: Path,
) -> Iterator[Stage]:
    """Two GPUs, and a daemon in one of the two views."""
    fake_node.write(gpus(2, total=40 * GiB, reserved=600 * MiB))
    entered: AbstractContextManager[dict[str, Any]] = nullcontext({})
    if request.param != "host view":
        entered = private_view(image)
    with entered as view:

        def start(*flags: str) -> Daemon:
            return start_daemon(*flags, **view)

        yield Stage(image, fake_node, run_pod, start, tmp_path / "names.json")
        fake_node.close()


def test_pods_with_one_and_several_containers(stage: Stage) -> None:
    """Each container has its own bytes on each GPU; the sum by pod over the metric is what the pod holds."""
    node = stage.node
    stage.pod(container("main", node, "alloc 0 2GiB"), namespace="team-a", name="one", qos=Qos.GUARANTEED)
    two = stage.pod(
        container("train", node, "alloc 0 3GiB", "alloc 1 5GiB", "children 3 0 64MiB"),
        container("sidecar", node, "alloc 1 128MiB graphics+compute"),
        namespace="team-b",
        name="two",
        qos=Qos.BESTEFFORT,
    )
    daemon = stage.daemon()
    stage.agree(daemon, "three containers on two GPUs")
    page = daemon.page()
    metric = series(page, "container_memory_used_bytes", *LABELS)
    assert metric == stage.expected()
    by_pod = sum(size for (_, pod, _, _), size in metric.items() if pod == "two")
    assert by_pod == sum(stage.workload(two, name).says().total for name in ("train", "sidecar"))
    processes = series(page, "container_processes", *LABELS)
    assert processes["team-b", "two", "train", node.gpus[0].uuid] == 4


def test_the_numbers_follow_what_workloads_do(stage: Stage) -> None:
    """Growth, release and the end of a process show in the next rounds, to the byte; the peak stays."""
    pod = stage.pod(container("main", stage.node, "alloc 0 1GiB"))
    daemon = stage.daemon()
    stage.agree(daemon, "the start")
    stage.workload(pod).alloc(0, 7 * GiB + 2 * MiB)
    stage.agree(daemon, "after growth")
    stage.workload(pod).free()
    stage.workload(pod).alloc(1, 3 * MiB)
    snapshot = stage.agree(daemon, "after release")
    stage.workload(pod).alloc(0, 1 * MiB)
    snapshot = stage.agree(daemon, "and a little again")
    peaks = {c["uuid"]: c["memory_peak_bytes"] for c in snapshot["containers"]}
    assert peaks[stage.node.gpus[0].uuid] == 8 * GiB + 2 * MiB


def test_a_restart_is_a_new_container_of_the_same_name(stage: Stage) -> None:
    """After a restart the name goes on with the new generation's bytes and a fresh peak."""
    pod = stage.pod(container("main", stage.node, "alloc 0 4GiB"))
    daemon = stage.daemon()
    before = stage.agree(daemon, "before the restart")
    stage.workload(pod).alloc(0, 6 * GiB)
    stage.agree(daemon, "with the peak of the first generation")
    generation = stage.workload(pod).says().token
    pod.containers["main"].restart()
    until(lambda: stage.workload(pod).says().token != generation, "the next generation to speak")
    stage.workload(pod).ready()
    stage.names()
    after = stage.agree(daemon, "after the restart")
    assert after["containers"][0]["container_id"] != before["containers"][0]["container_id"]
    assert after["containers"][0]["memory_peak_bytes"] == 4 * GiB


def test_an_exec_is_part_of_its_container(stage: Stage) -> None:
    """A process started by exec, which no runtime label names, counts where its cgroup is."""
    pod = stage.pod(container("main", stage.node, "alloc 0 1GiB"))
    daemon = stage.daemon()
    speaks_as = f"exec-{uuid.uuid4().hex[:6]}"
    pod.containers["main"].spawn("/bin/workload", "--name", speaks_as, "alloc 0 512MiB")
    stage.node.workload(speaks_as).ready()

    def both(snapshot: dict[str, Any]) -> bool:
        return list(held(snapshot).values()) == [GiB + 512 * MiB]

    daemon.until(both, "the container and its exec together")


@pytest.mark.parametrize(
    "nested",
    [
        pytest.param("docker/" + "0123456789abcdef" * 4, id="docker in the pod"),
        pytest.param("kubepods/besteffort/pod{victim}/" + "f" * 64, id="imitates another pod"),
        pytest.param("kubepods-pod{victim_}.slice/cri-containerd-" + "e" * 64 + ".scope", id="imitates systemd's name"),
    ],
)
def test_a_nested_container_cannot_rename_itself(stage: Stage, nested: str) -> None:
    """What a container builds below its own cgroup stays its own, whatever it is called."""
    victim = stage.pod(container("main", stage.node, "alloc 1 1GiB"), name="victim")
    pod = stage.pod(container("main", stage.node, "alloc 0 2GiB"), name="nester")
    found = pod.containers["main"]
    path = nested.format(victim=victim.uid, victim_=victim.uid.replace("-", "_"))
    stage.bed.containerd.cgroups.nest(found.cgroup, path, found.pid)
    stage.agree(stage.daemon(), "the nested process in its outer container")


@pytest.mark.fault(72)
def test_a_fork_whose_parent_was_seen_is_inherited_and_never_a_process(stage: Stage) -> None:
    """DataLoader workers: the sighted parent exits, the bytes stay with the container, and no dead pid is listed."""
    pod = stage.pod(container("main", stage.node))
    speaks_as = f"loader-{uuid.uuid4().hex[:6]}"
    first = pod.containers["main"].spawn("/bin/workload", "--name", speaks_as, "alloc 0 2GiB")
    loader = stage.node.workload(speaks_as)
    loader.ready()
    daemon = stage.daemon()
    daemon.until(lambda s: first in [p for c in s["containers"] for p in c["pids"]], "the parent to be sighted")
    loader.fork("exit")
    snapshot = daemon.until(lambda s: s if s["processes"]["inherited"] == 1 else None, "the heir")
    assert list(held(snapshot).values()) == [2 * GiB]
    assert snapshot["containers"][0]["pids"] == []
    assert snapshot["processes"]["ghost"] == 0
    assert all(closes(snapshot))


def test_a_process_whose_first_thread_ended_still_holds_its_memory(stage: Stage) -> None:
    """A zombie leader with living threads is a living process: its bytes are its container's, and it is counted."""
    pod = stage.pod(container("main", stage.node))
    speaks_as = f"threads-{uuid.uuid4().hex[:6]}"
    pid = pod.containers["main"].spawn("/bin/workload", "--name", speaks_as, "alloc 0 2GiB", "zombie")
    stage.node.workload(speaks_as).ready()
    assert Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    daemon = stage.daemon()
    snapshot = daemon.until(lambda s: s if list(held(s).values()) == [2 * GiB] else None, "the zombie's memory")
    assert snapshot["containers"][0]["pids"] == [pid]
    assert snapshot["processes"]["ghost"] == snapshot["processes"]["inherited"] == 0


@pytest.mark.fault(72)
def test_memory_that_nothing_explains_is_a_ghost(stage: Stage) -> None:
    """A number that was dead before the daemon came belongs to no container, and the accounts still close."""
    pod = stage.pod(container("main", stage.node))
    stage.workload(pod).ghost(0, 3 * GiB)
    daemon = stage.daemon()
    snapshot = daemon.until(lambda s: s if s["processes"]["ghost"] == 1 else None, "the ghost")
    assert snapshot["devices"][0]["memory_ghost_bytes"] == 3 * GiB
    assert snapshot["complete"] and all(closes(snapshot))


def test_drivers_that_list_threads(stage: Stage) -> None:
    """On a driver with the thread-id bug each thread's entry counts, once, in its process's container."""
    stage.node.set_switch("thread_ids")
    stage.pod(container("main", stage.node, "alloc 0 1GiB", "thread 0 2GiB", "thread 1 512MiB"))
    snapshot = stage.agree(stage.daemon(), "threads of one process")
    assert [c["processes"] for c in snapshot["containers"]] == [1, 1]


def test_a_process_of_the_host_is_the_hosts(stage: Stage) -> None:
    """A process outside of all pods is counted as the host's, next to the containers."""
    stage.pod(container("main", stage.node, "alloc 0 1GiB"))
    stage.node.spawn("alloc 0 300MiB graphics")
    daemon = stage.daemon()
    snapshot = stage.agree(daemon, "the container beside the host's process")
    assert snapshot["devices"][0]["memory_host_bytes"] == 300 * MiB


@pytest.mark.fault(33)
def test_a_container_without_a_name_is_unattributed(stage: Stage) -> None:
    """A pod that the inventory does not know is not the host's and not a neighbour's: it is unattributed, and said."""
    daemon = stage.daemon()
    daemon.snapshot()
    pod = stage._run_pod(container("main", stage.node, "alloc 0 1GiB")[0], name="unknown")
    snapshot = daemon.until(lambda s: s if s["processes"]["unknown_container"] == 1 else None, "the unknown pod")
    assert snapshot["devices"][0]["memory_unattributed_bytes"] == GiB
    assert snapshot["containers"] == []
    assert pod.containers["main"].running


def test_mig_instances_with_two_compute_instances(stage: Stage) -> None:
    """
    Memory is the GPU instance's: two containers on the two compute instances of one share its pool, counted once.

    So is the share of SMs (GPM): a container alone on an instance has its figure; of two on one instance it is unknown.
    """
    half = FakeGpuInstance(
        1, 20 * GiB, (FakeComputeInstance("MIG-a", slot=0), FakeComputeInstance("MIG-b", slot=1, id=1)), "3g.20gb"
    )
    small = FakeGpuInstance(7, 5 * GiB, (FakeComputeInstance("MIG-c", slot=2),), "1g.5gb")
    stage.node.write(gpus(1, mig="on", gpm=1, instances=(half, small)))
    stage.pod(container("main", stage.node, "alloc MIG-a 2GiB compute sm=10"), name="a")
    stage.pod(
        container("main", stage.node, "alloc MIG-b 3GiB compute sm=20", "alloc MIG-c 1GiB compute sm=60"), name="b"
    )
    daemon = stage.daemon()

    def instances(snapshot: dict[str, Any]) -> dict[tuple[str, int], int]:
        return {(c["pod"], c["gpu_instance"]): c["memory_used_bytes"] for c in snapshot["containers"]}

    wanted = {("a", 1): 2 * GiB, ("b", 1): 3 * GiB, ("b", 7): GiB}
    snapshot = daemon.until(lambda s: s if instances(s) == wanted else None, "three usages on two instances")
    assert {d["gpu_instance"]: d["memory_used_bytes"] for d in snapshot["devices"]} == {1: 5 * GiB, 7: GiB}
    assert all(closes(snapshot))
    page = daemon.page()
    assert set(series(page, "device_memory_used_bytes", "gpu_instance")) == {("1",), ("7",)}
    assert {i for (i,) in series(page, "device_info", "gpu_instance")} == {"1", "7"}

    def busy(_snapshot: dict[str, Any]) -> dict[tuple[str, ...], float]:
        return series(daemon.get("/metrics")[1], "device_sm_utilization_ratio", "gpu_instance")

    assert daemon.until(busy, "the second sample of GPM") == {("1",): 0.3, ("7",): 0.6}
    alone = series(daemon.page(), "container_sm_utilization_ratio", "pod", "gpu_instance")
    assert alone == {("b", "7"): 0.6}


def test_two_generations_of_one_name_are_one_series(stage: Stage) -> None:
    """While a pod terminates and the next of its name runs, the page has one sample a name, with the sum."""
    stage.pod(container("main", stage.node, "alloc 0 1GiB"), namespace="db", name="db-0")
    stage.pod(container("main", stage.node, "alloc 0 2GiB"), namespace="db", name="db-0")
    daemon = stage.daemon()

    def summed(snapshot: dict[str, Any]) -> bool:
        return sorted(c["memory_used_bytes"] for c in snapshot["containers"]) == [GiB, 2 * GiB]

    daemon.until(summed, "both generations in the snapshot")
    metric = series(daemon.page(), "container_memory_used_bytes", *LABELS)
    assert metric == {("db", "db-0", "main", stage.node.gpus[0].uuid): 3 * GiB}


def test_what_is_gone_is_gone(stage: Stage) -> None:
    """A pod that ended leaves the page with the next round: no series of the dead."""
    pod = stage.pod(container("main", stage.node, "alloc 0 1GiB"))
    daemon = stage.daemon()
    stage.agree(daemon, "the pod alive")
    pod.stop()
    stage.forget(pod)
    stage.agree(daemon, "the pod gone")
    assert series(daemon.get("/metrics")[1], "container_memory_used_bytes", *LABELS) == {}


@pytest.mark.fault(71)
def test_without_the_hosts_pids_nothing_is_attributed(stage: Stage, fake_node: FakeNode) -> None:
    """In a PID namespace of its own the daemon sees other numbers: it says so, and attributes nothing."""
    stage.pod(container("main", stage.node, "alloc 0 1GiB"))
    stage.names()
    env = {**os.environ, **fake_node.environment()}
    with Daemon(
        "--devices=nvml",
        f"--names.file={stage._file}",
        "--node.host-root=/",
        "--log.format=json",
        env=env,
        enter=("unshare", "--pid", "--fork", "--kill-child", "--mount-proc"),
    ) as daemon:
        snapshot = daemon.snapshot()
        assert snapshot["pid_domain_proven"] is False
        assert snapshot["containers"] == []
        assert snapshot["devices"][0]["memory_used_bytes"] == GiB
        page = daemon.get("/metrics")[1]
        assert series(page, "pid_domain_proven") == {(): 0}
        assert "pid_domain_unproven" in json.dumps(snapshot["faults"])
        daemon.process.send_signal(signal.SIGTERM)
