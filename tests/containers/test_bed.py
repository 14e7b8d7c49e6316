"""The container bed's own life: it starts, it ends, and nothing of it stays, whichever process was killed.

In: a machine with root, containerd and runc. Out: proof, by looking for every trace that a bed could leave.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from containers import images
from containers.cgroupfs import Ledger, hierarchies, members, move, start_ticks
from containers.containerd import BedError, Containerd, choose_snapshotter
from containers.fixtures import RunPod, need_containers, wait_until
from containers.leftovers import SHIM_SOCKETS, mounts_below
from containers.pods import Bed

pytestmark = pytest.mark.containers

OTHER_CONTAINER = "0123456789abcdef" * 4
OWNER = Path(__file__).with_name("bed_owner.py")


def traces(token: str, home: Path, *uids: str) -> list[str]:
    """Whatever on this machine still bears a bed's token or one of its pods' uids."""
    marks = [token, *uids, *(uid.replace("-", "_") for uid in uids)]
    found = [f"mount {path}" for path in mounts_below(home)]
    for root in hierarchies().all:
        found += [str(path) for path, _, _ in os.walk(root) if any(mark in path for mark in marks)]
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and start_ticks(int(entry.name)) is not None:
            try:
                text = (entry / "cmdline").read_text(errors="replace") + (entry / "cgroup").read_text()
            except OSError:
                continue
            found += [f"process {entry.name}"] if any(mark in text for mark in marks) else []
    return found + ([str(home)] if home.exists() else [])


def kill(*pids: int) -> None:
    """SIGKILL to other processes than our children, and wait until they are gone."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not any(start_ticks(pid) for pid in pids), what="what was killed has ended")


@pytest.fixture
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A fresh folder with a short name: a socket's path is limited, and tmp_path has the test's whole name in it."""
    need_containers()
    return tmp_path_factory.mktemp("bed")


def test_nothing_stays_after_stop(folder: Path) -> None:
    """A bed that is stopped with running, restarted and nested containers leaves no process, mount, cgroup or file."""
    sockets = set(SHIM_SOCKETS.glob("*"))
    with Containerd(folder) as containerd:
        kubepods = f"/gpusteward-test-{containerd.token}/kubepods"  # so that its parents too are seen by traces()
        pod = Bed(containerd, kubepods=kubepods).run_pod("team-a", "job", ["main", "side"])
        main = pod.containers["main"]
        main.restart()
        containerd.cgroups.nest(main.cgroup, f"docker/{OTHER_CONTAINER}", main.spawn("sleep", "600"))
        scope = containerd.cgroups.scope_v2(pod.uid, main.id)
        bystander = subprocess.Popen(["sleep", "600"])
        move(bystander.pid, scope)
        pids = {main.pid, bystander.pid, containerd.pid}
        assert len(traces(containerd.token, containerd.home, pod.uid)) > 20, "this test can see what it looks for"
    bystander.wait()
    assert traces(containerd.token, containerd.home, pod.uid) == []
    assert [pid for pid in pids if start_ticks(pid) is not None] == []
    assert set(SHIM_SOCKETS.glob("*")) - sockets == set()
    assert list(folder.iterdir()) == []
    containerd.stop()  # a second stop finds nothing to do


@pytest.mark.parametrize("killed", ["owner", "containerd", "daemons"])
def test_the_next_start_removes_what_a_killed_bed_left(folder: Path, killed: str) -> None:
    """Whichever process is killed (the tests; also their containerd; also its shims), the next bed removes the rest."""
    with subprocess.Popen(
        [sys.executable, str(OWNER), str(folder / "first")],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])},
    ) as owner:
        assert owner.stdout is not None
        told = json.loads(owner.stdout.readline())
        assert owner.poll() is None
        os.kill(owner.pid, signal.SIGKILL)
    token, home, uid = told["token"], Path(told["home"]), told["pod_uid"]
    if killed != "owner":
        # In this order: a containerd that sees a shim die removes the shim's container by itself.
        kill(told["containerd"])
        if killed == "daemons":
            kill(*members(Ledger(token).folder))
    left = traces(token, home, uid)
    assert start_ticks(told["pid"]) is not None, "the container outlives its bed"
    assert any(trace.startswith("mount") for trace in left)

    with Containerd(folder / "second") as second:
        removed = second.removed_at_start
    assert start_ticks(told["pid"]) is None
    assert traces(token, home, uid) == []
    assert f"cgroup /kubepods/burstable/pod{uid}" in removed
    assert f"folder {home}" in removed
    assert any(line.startswith(f"mount {home}") for line in removed)
    assert any("containerd-shim" in line for line in removed) == (killed != "daemons")


def test_a_living_bed_is_left_alone(bed: Bed, run_pod: RunPod, folder: Path) -> None:
    """A second bed beside a living one starts, runs a pod, goes, and has not touched the first one's."""
    main = run_pod("main").containers["main"]
    pid = main.pid
    with Containerd(folder) as second:
        other = Bed(second).run_pod("team-a", "job", ["main"])
        assert other.uid not in {entry["pod_uid"] for entry in bed.inventory()}
    assert second.removed_at_start == []
    assert main.pid == pid


def test_a_start_that_fails_leaves_nothing(folder: Path) -> None:
    """When containerd refuses its configuration, the start fails at once, and nothing stays."""
    broken = Containerd(folder, cri_options={"stream_server_port": "not a port", "sandbox_image": 7})
    with pytest.raises(BedError, match="containerd ended with 1"):
        broken.start()
    assert traces(broken.token, broken.home) == []


def test_the_native_snapshotter_works_too(folder: Path) -> None:
    """Where no overlay can be mounted, the copying snapshotter runs the same pod."""
    assert choose_snapshotter(folder / "trial") in {"overlayfs", "native"}
    with Containerd(folder / "native", snapshotter="native") as containerd:
        main = Bed(containerd).run_pod("team-a", "job", ["main"]).containers["main"]
        assert main.exec("echo", "hello").stdout == "hello\n"


def test_a_bed_can_live_in_a_mount_namespace_of_its_own(folder: Path) -> None:
    """With `unshare --mount` before its command, its mounts are not seen on the machine, and it stops as cleanly."""
    with Containerd(folder, prefix=["unshare", "--mount"]) as containerd:
        pod = Bed(containerd).run_pod("team-a", "job", ["main"])
        assert pod.containers["main"].exec("echo", "hello").stdout == "hello\n"
        assert mounts_below(containerd.home) == []
    assert traces(containerd.token, containerd.home, pod.uid) == []
    assert list(folder.iterdir()) == []


def test_a_folder_that_is_too_long_is_refused(tmp_path: Path) -> None:
    """A socket's path is limited by the system: the error says so, before anything is started."""
    need_containers()
    with pytest.raises(BedError, match="shorter folder"):
        Containerd(tmp_path / ("x" * 100)).start()


def test_an_import_that_lacks_the_name_is_refused(containerd: Containerd, tmp_path: Path) -> None:
    """Asking for a name that the archive does not hold is an error that names what it holds."""
    tar = images.busybox_image(tmp_path / "image.tar", name="gpusteward.test/one:1")
    with pytest.raises(BedError, match=r"gpusteward.test/two:1.*gpusteward.test/one:1"):
        containerd.import_image(tar, "gpusteward.test/two:1")
