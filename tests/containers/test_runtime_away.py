"""The container runtime is away: containers are known by their cgroups, which the kernel keeps without it."""

from __future__ import annotations

from pathlib import Path

import pytest

from containers.cgroupfs import start_ticks
from containers.containerd import Containerd
from containers.fixtures import need_containers
from containers.observed import Held, agree, closes, container, import_workload, told
from containers.pods import Bed
from daemon.fixtures import StartDaemon
from driver.node import FakeNode, GiB, gpus

pytestmark = pytest.mark.containers


@pytest.mark.fault(37)
def test_containerd_is_killed_and_starts_again(
    fake_node: FakeNode, start_daemon: StartDaemon, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """With it, without it, with it again: the same containers, to the byte; no process is touched."""
    need_containers()
    fake_node.write(gpus(1, total=40 * GiB))
    with Containerd(tmp_path_factory.mktemp("own")) as containerd:
        bed = Bed(containerd)
        import_workload(bed, fake_node, tmp_path)
        asked = [container(name, fake_node, "alloc 0 2GiB") for name in ("main", "side")]
        pod = bed.run_pod("team-a", "job", [spec for spec, _ in asked])
        workloads = {spec.name: fake_node.workload(speaks_as) for spec, speaks_as in asked}
        for one in workloads.values():
            one.ready()
        pids = {name: one.pid for name, one in pod.containers.items()}
        began = {name: start_ticks(pid) for name, pid in pids.items()}
        names = bed.write_inventory(tmp_path / "names.json")
        daemon = start_daemon(f"--names.file={names}", "--node.host-root=/")

        def expected() -> Held:
            return {key: size for n, one in workloads.items() for key, size in told(pod.containers[n], one).items()}

        def ids(what: str) -> dict[str, str]:
            snapshot = agree(daemon, expected, what)
            assert all(closes(snapshot)), snapshot["devices"]
            return {one["container"]: one["container_id"] for one in snapshot["containers"]}

        before = ids("with containerd")
        containerd.kill()
        workloads["main"].alloc(0, 3 * GiB)
        away = ids("without containerd")
        containerd.start_again()
        workloads["side"].alloc(0, 5 * GiB)
        after = ids("with containerd again")
        assert before == away == after == {name: one.id for name, one in pod.containers.items()}
        assert {name: one.pid for name, one in pod.containers.items()} == pids
        assert {name: start_ticks(pid) for name, pid in pids.items()} == began and None not in began.values()
        fake_node.close()
