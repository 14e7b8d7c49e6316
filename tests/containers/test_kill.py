"""
The action `kill` on real containers: only its victim ends, and where that is not certain nothing is sent.

In each test a neighbour must live: same pod, other pod, or the process that has the number now.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from containers.cgroupfs import Ledger, below, hierarchies, move, start_ticks
from containers.fixtures import RunPod, wait_until
from containers.killer import action, child_of, join, stat
from containers.pods import Bed, Container, Pod
from containers.specs import ContainerSpec, HostPath, PidMode
from driver.namespaces import in_new_namespace
from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.actuator import ASKED, DEAF, GRACE_OVER, INSISTED, Kill
from enforcer.actions.kill.pidfds import Hold, Inits
from enforcer.actions.kill.targets import Member, Obstacle
from enforcer.actions.victim import Victim
from enforcer.policy.history import Action
from exporter.base.cgroup_owner import USUAL
from exporter.model import ContainerId, HostSample, PodUid
from patience import PATIENCE
from stopping import stopped

pytestmark = pytest.mark.containers

DECISION, ANOTHER = "decision-1", "decision-2"
SAVES = "trap 'echo saved > /state/saved; exit 0' TERM; touch /state/ready; while :; do sleep 600 & wait; done"
HEARS_AND_STAYS = "trap 'touch /state/heard' TERM; touch /state/ready; while :; do sleep 600 & wait; done"
IGNORES = "trap '' TERM; touch /state/ready; while :; do sleep 600 & wait; done"
NO_HANDLER = "touch /state/ready; exec sleep 600"
FORKS = "trap '' TERM; touch /state/ready; while :; do (sleep 1 & sleep 1 & sleep 1) & sleep 0.02; done"
KILLED = 128 + signal.SIGKILL


def descriptors() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def user_of(pid: int) -> int:
    return Path(f"/proc/{pid}").stat().st_uid


def victim_of(container: Container) -> Victim:
    return PodUid(container.pod.uid), ContainerId(container.id)


class Stage:
    """The action `kill`, and the processes that it must leave alone: they still run when a test ends."""

    def __init__(self, run_pod: RunPod, folder: Path) -> None:
        self.kill = Kill(Path("/proc"), USUAL, trusted=True)
        self._run_pod = run_pod
        self.folder = folder
        self._bystanders: dict[int, int | None] = {}
        self.neighbour = self.pod("main", name="neighbour")
        self.spare(self.neighbour.containers["main"].pid)

    def pod(self, *containers: ContainerSpec | str, **words: Any) -> Pod:
        return self._run_pod(*containers, **words)

    def start(self, script: str, *, user: int = 0) -> Container:
        """Start a pod of this script and a sidecar that must live; return the first when it did what it does first."""
        users = self.folder / "passwd"
        users.write_text(f"user:x:{user}:{user}::/:/bin/sh\n")
        become = ["/bin/busybox", "su", "-s", "/bin/sh", "user"] if user else ["/bin/sh"]
        mounts = [HostPath(self.folder, at="/state"), HostPath(users, at="/etc/passwd")]
        pod = self.pod(ContainerSpec("main", command=[*become, "-c", script], mounts=mounts), "side")
        self.spare(pod.containers["side"].pid)
        self.wrote("ready")
        return pod.containers["main"]

    def wrote(self, name: str) -> None:
        wait_until((self.folder / name).exists, what=f"the container wrote {name}")

    def spare(self, pid: int) -> None:
        self._bystanders[pid] = start_ticks(pid)

    async def hold(self, *victims: Victim | Container) -> None:
        await self.kill.hold([victim_of(v) if isinstance(v, Container) else v for v in victims])

    def all_live(self) -> bool:
        return all(ticks is not None and start_ticks(pid) == ticks for pid, ticks in self._bystanders.items())


@pytest.fixture
def stage(run_pod: RunPod, tmp_path: Path) -> Iterator[Stage]:
    """An action `kill` of its own, and a neighbour that lives to the end."""
    tmp_path.chmod(0o777)  # containers of other users write what they did
    made = Stage(run_pod, tmp_path)
    yield made
    made.kill.close()
    assert made.all_live(), "an innocent did not live"


async def until(condition: Callable[[], Awaitable[bool | None]], what: str) -> None:
    """Wait until an asynchronous condition holds."""
    deadline = time.monotonic() + PATIENCE
    while not await condition():
        assert time.monotonic() < deadline, f"in vain: {what}"
        time.sleep(0.01)  # noqa: ASYNC251  (no other task is on this loop)


async def gone(stage: Stage, asked: Action, container: Container) -> int:
    """Wait until `kill` says that its victim ended. Return the exit code that the runtime reports."""
    await until(lambda: stage.kill.ended(asked), "the init exits")
    wait_until(lambda: not container.running, what="the runtime knows")
    return int(container.status.exit_code)


# --- what is asked for happens ----------------------------------------------------------------------------------------


async def test_an_over_user_ends_and_nobody_else(stage: Stage) -> None:
    """SIGTERM ends the container that handles it; its sidecar and its neighbours go on."""
    pod = stage.pod("main", "side")
    main, side = pod.containers["main"], pod.containers["side"]
    stage.spare(side.pid)
    asked = action(victim_of(main))
    await stage.hold(main, side, stage.neighbour.containers["main"])
    assert not stage.kill.obstacles
    assert stage.kill.preflight(asked) is None
    assert await stage.kill.ended(asked) is False
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, ASKED)
    assert await gone(stage, asked, main) != KILLED
    assert side.running


async def test_who_saves_in_time_is_not_killed(stage: Stage, tmp_path: Path) -> None:
    """A handler that saves and exits has its own exit code; SIGKILL is not sent to what is gone."""
    main = stage.start(SAVES)
    asked = action(victim_of(main))
    await stage.hold(main)
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, ASKED)
    assert await gone(stage, asked, main) == 0
    assert (tmp_path / "saved").read_text() == "saved\n"
    answer = await stage.kill.insist(asked, DECISION)
    assert answer is not None and answer.heard is Heard.GONE
    assert await stage.kill.act(asked, ANOTHER) == answer


@pytest.mark.fault(46)
async def test_an_init_that_handles_sigterm_and_stays_is_killed_once(stage: Stage) -> None:
    """SIGKILL ends an init that handled SIGTERM and went on; a second SIGKILL is not sent."""
    main = stage.start(HEARS_AND_STAYS)
    asked = action(victim_of(main))
    await stage.hold(main)
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, ASKED)
    stage.wrote("heard")
    assert await stage.kill.ended(asked) is False
    assert await stage.kill.insist(asked, DECISION) == Answer(Heard.ACCEPTED, GRACE_OVER)
    assert await stage.kill.insist(asked, DECISION) is None
    assert await gone(stage, asked, main) == KILLED


@pytest.mark.fault(46)
@pytest.mark.parametrize("script", [IGNORES, NO_HANDLER])
async def test_the_answer_says_that_an_init_does_not_handle_sigterm(stage: Stage, script: str) -> None:
    """An init that ignores SIGTERM, or has no handler for it, lives on; the answer says so, and SIGKILL ends it."""
    main = stage.start(script)
    asked = action(victim_of(main))
    await stage.hold(main)
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, DEAF)
    assert await stage.kill.ended(asked) is False
    assert await stage.kill.insist(asked, DECISION) == Answer(Heard.ACCEPTED, GRACE_OVER)
    assert await gone(stage, asked, main) == KILLED


@pytest.mark.fault(43)
async def test_a_fork_storm_ends_with_its_init(stage: Stage) -> None:
    """However its processes come and go, the container's init is held; with it all of them end."""
    main = stage.start(FORKS)
    asked = action(victim_of(main))
    wait_until(lambda: len(main.pids) > 20, what="a storm")
    await stage.hold(main)
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, DEAF)
    assert await stage.kill.insist(asked, DECISION) == Answer(Heard.ACCEPTED, GRACE_OVER)
    assert await gone(stage, asked, main) == KILLED
    assert main.pids == set()


@pytest.mark.fault(44)
async def test_an_exec_leaves_the_init_the_same(stage: Stage) -> None:
    """What is executed in a container, a namespace made inside, and another program in its init leave it the init."""
    main = stage.start("touch /state/ready; while [ ! -e /state/go ]; do sleep 0.01; done; exec sleep 600")
    await stage.hold(main)
    init = main.pid
    main.spawn("sleep", "600")
    (stage.folder / "go").touch()
    wait_until(lambda: Path(f"/proc/{init}/comm").read_text() == "sleep\n", what="another program")
    assert stage.kill.preflight(action(victim_of(main))) is None
    fresh = Kill(Path("/proc"), USUAL, trusted=True)
    await fresh.hold([victim_of(main)])
    assert fresh.held == {victim_of(main)}, "an exec in between is no obstacle"
    fresh.close()
    assert main.running


# --- no other process -------------------------------------------------------------------------------------------------


@pytest.mark.fault(38, 20)
async def test_a_restarted_container_lives(stage: Stage) -> None:
    """What was held of a container's last life is gone; the new one has a new id, and is no action's victim."""
    pod = stage.pod("main", "side")
    main = pod.containers["main"]
    old = victim_of(main)
    await stage.hold(old)
    main.restart()
    stage.spare(main.pid)
    asked = action(old)
    for answer in (stage.kill.preflight(asked), await stage.kill.act(asked, DECISION)):
        assert answer is not None and answer.heard is Heard.GONE
    assert await stage.kill.ended(asked) is True
    fresh = await stage.kill.act(action(victim_of(main)), ANOTHER)
    assert fresh == Answer(Heard.FAILED, "it was not held while its grace ran")
    await stage.hold(main)
    assert stage.kill.held == {victim_of(main)}
    assert stage.kill.preflight(action(victim_of(main))) is None
    assert main.running


async def test_who_is_not_held_is_not_signalled(stage: Stage) -> None:
    """An action whose victim was not held, or is no container, is not taken."""
    main = stage.start(SAVES)
    not_held = await stage.kill.act(action(victim_of(main)), DECISION)
    assert not_held == Answer(Heard.FAILED, "it was not held while its grace ran")
    await stage.hold(main)
    container = action(victim_of(main))
    pod = replace(container, key=replace(container.key, container_id=ContainerId("")))
    assert (await stage.kill.act(pod, DECISION)).heard is Heard.IMPOSSIBLE
    assert await stage.kill.ended(pod) is None
    await stage.hold()
    assert (await stage.kill.act(action(victim_of(main)), DECISION)).heard is Heard.FAILED
    assert main.running
    assert not (stage.folder / "saved").exists()


@pytest.mark.fault(51)
async def test_what_one_daemon_began_another_does_not_finish(stage: Stage) -> None:
    """After a restart between SIGTERM and SIGKILL no SIGKILL follows from the old decision; the end is still seen."""
    main = stage.start(HEARS_AND_STAYS)
    asked = action(victim_of(main))
    await stage.hold(main)
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, ASKED)
    stage.wrote("heard")
    stage.kill.close()
    stage.kill = Kill(Path("/proc"), USUAL, trusted=True)
    refused = await stage.kill.insist(asked, DECISION)
    assert refused is not None and refused.heard is Heard.FAILED
    await stage.hold(main)
    refused = await stage.kill.insist(asked, DECISION)
    assert refused == Answer(Heard.FAILED, "this daemon did not ask it to end, so it is not killed")
    assert main.running
    await stage.hold()
    assert await stage.kill.ended(asked) is False
    main.stop()
    await until(lambda: stage.kill.ended(asked), "nothing of it is left")


async def test_each_that_was_asked_is_held_until_it_has_exited(stage: Stage) -> None:
    """Between SIGTERM and SIGKILL containers stay held, though their levels began anew; afterwards none is."""
    main = stage.start(HEARS_AND_STAYS)
    other = stage.pod("main", name="other").containers["main"]
    await stage.hold(main, other)
    assert await stage.kill.act(action(victim_of(main)), DECISION) == Answer(Heard.ACCEPTED, ASKED)
    assert await stage.kill.act(action(victim_of(other)), ANOTHER) == Answer(Heard.ACCEPTED, ASKED)
    await gone(stage, action(victim_of(other)), other)
    await stage.hold()
    assert stage.kill.held == {victim_of(main)}
    assert await stage.kill.insist(action(victim_of(main)), DECISION) == Answer(Heard.ACCEPTED, GRACE_OVER)
    assert await gone(stage, action(victim_of(main)), main) == KILLED
    files = descriptors()
    await stage.hold()
    assert not stage.kill.held and descriptors() == files - 1


async def test_one_that_lived_on_is_killed_when_it_is_due_again(stage: Stage) -> None:
    """It heard SIGTERM and its grace is over: a pause whenever SIGKILL is due must not keep it alive for ever."""
    main = stage.start(HEARS_AND_STAYS)
    asked = action(victim_of(main))
    await stage.hold(main)
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.ACCEPTED, ASKED)
    stage.wrote("heard")
    assert await stage.kill.act(asked, ANOTHER) == Answer(Heard.ACCEPTED, INSISTED)
    assert await stage.kill.insist(asked, ANOTHER) is None
    assert await gone(stage, asked, main) == KILLED


@pytest.mark.parametrize(("mode", "why"), [(PidMode.NODE, Obstacle.HOST), (PidMode.POD, Obstacle.SHARED)])
async def test_a_shared_namespace_has_no_init_of_the_container(stage: Stage, mode: PidMode, why: Obstacle) -> None:
    """With hostPID and shareProcessNamespace `kill` is not available, and says so; no process is signalled instead."""
    pod = stage.pod("main", "side", pid_mode=mode)
    for container in pod.containers.values():
        stage.spare(container.pid)
    await stage.hold(*pod.containers.values())
    assert stage.kill.obstacles == {victim_of(container): why for container in pod.containers.values()}
    asked = action(victim_of(pod.containers["main"]))
    assert await stage.kill.act(asked, DECISION) == Answer(Heard.IMPOSSIBLE, why.value)
    assert stage.kill.preflight(asked) == Answer(Heard.IMPOSSIBLE, why.value)
    assert await stage.kill.ended(asked) is False


@contextmanager
def process(*command: str) -> Iterator[int]:
    """A process of no container; ended afterwards."""
    with subprocess.Popen(command) as running:
        try:
            yield running.pid
        finally:
            running.kill()


def ended_process() -> int:
    """Return the number of a process that is no more."""
    with process("true") as pid:
        pass
    return pid


async def test_an_init_that_a_workload_makes_is_not_the_containers(stage: Stage) -> None:
    """A container in the host's namespace makes a namespace: its first process looks like an init, and lives."""
    main = stage.pod("main", pid_mode=PidMode.NODE).containers["main"]
    with process(*in_new_namespace(), "sleep", "600") as unshare:
        fake = child_of(unshare)
        join(main.cgroup, unshare)
        join(main.cgroup, fake)
        for pid in (main.pid, unshare, fake):
            stage.spare(pid)
        await stage.hold(main)
        assert stage.kill.obstacles == {victim_of(main): Obstacle.HOST}
        assert (await stage.kill.act(action(victim_of(main)), DECISION)).heard is Heard.IMPOSSIBLE
        assert stage.all_live()
        os.kill(fake, signal.SIGKILL)
        stage._bystanders.clear()


def moved(pid: int, cgroup: str) -> None:
    """Put a process into a cgroup of each hierarchy, as only root can."""
    for root in hierarchies().all:
        move(pid, below(root, cgroup))


@contextmanager
def ends_alone(stage: Stage, main: Container) -> Iterator[None]:
    """
    See that the container ends, and with exit code 0, and no other process in its cgroup does.

    Afterwards the runtime ends all that it finds in the cgroup, so it is stopped meanwhile.
    """
    init = main.pid
    with stopped(int(stat(init)[1])):
        yield
        wait_until(lambda: stat(init)[0] == "Z", what="the init exits")
        assert stage.all_live()
        stage._bystanders = {pid: ticks for pid, ticks in stage._bystanders.items() if pid not in main.pids}
    wait_until(lambda: not main.running, what="the runtime knows")
    assert main.status.exit_code == 0


async def test_a_process_forged_into_a_container_protects_it_from_nothing(stage: Stage) -> None:
    """A process of the host (as `runc exec` begins) and an init of a new namespace are in the cgroup, and live on."""
    main = stage.start(SAVES)
    with process("sleep", "600") as stranger, process(*in_new_namespace(), "sleep", "600") as unshare:
        for pid in (stranger, child_of(unshare)):
            moved(pid, main.cgroup)
            stage.spare(pid)
        await stage.hold(main)
        assert stage.kill.held == {victim_of(main)}
        with ends_alone(stage, main):
            assert await stage.kill.act(action(victim_of(main)), DECISION) == Answer(Heard.ACCEPTED, ASKED)


class Kubelet:
    """A folder for pods as the kubelet has one, and a process that has the mounts of a pod of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.enter = ("unshare", "--mount", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"', str(self.log(new_uid())))

    def log(self, uid: str) -> Path:
        """Make the termination log of a container."""
        log = self.folder / "pods" / uid / "containers" / "main" / "5f3a8c21"
        log.parent.mkdir(parents=True)
        log.touch()
        return log

    def pod(self, stage: Stage, name: str, script: str = "exec sleep 600") -> Container:
        """Start a pod with the kubelet's mount."""
        uid = new_uid()
        mounts = [HostPath(self.log(uid), at="/dev/termination-log"), HostPath(stage.folder, at="/state")]
        spec = ContainerSpec("main", command=["/bin/sh", "-c", script], mounts=mounts)
        return stage.pod(spec, name=name, uid=uid).containers["main"]


def new_uid() -> str:
    return str(uuid.uuid4())


@pytest.mark.parametrize("host", [False, True], ids=["the init of another pod", "a process of the host"])
async def test_what_is_moved_from_elsewhere_is_no_victim_and_no_protection(
    stage: Stage, tmp_path: Path, *, host: bool
) -> None:
    """It is older than the container, and only its mounts tell it from the init: the init ends, and it lives."""
    kubelet = Kubelet(tmp_path / "kubelet")
    innocent = kubelet.pod(stage, "innocent")
    with process("sleep", "600") as older:
        main = kubelet.pod(stage, "over", SAVES)
        stage.wrote("ready")
        pid = older if host else innocent.pid
        moved(pid, main.cgroup)
        stage.spare(pid)
        with ends_alone(stage, main):
            _, obstacles, answers = killer("ask", *victim_of(main), below_=kubelet.enter)
            assert (obstacles, answers) == ([], [None, [Heard.ACCEPTED.value, ASKED]])


async def test_an_innocent_in_the_place_of_the_init_lives(stage: Stage, tmp_path: Path) -> None:
    """The init left the cgroup, and another pod's is there instead: no process is signalled, and the reason says so."""
    kubelet = Kubelet(tmp_path / "kubelet")
    innocent, main = kubelet.pod(stage, "innocent"), kubelet.pod(stage, "over")
    inits = innocent.pid, main.pid
    for pid, to in zip(inits, (main.cgroup, innocent.cgroup), strict=True):
        moved(pid, to)
        stage.spare(pid)
    _, obstacles, answers = killer("ask", *victim_of(main), below_=kubelet.enter)
    assert obstacles == [Obstacle.NOT_SURE.value]
    assert answers == [[Heard.IMPOSSIBLE.value, Obstacle.NOT_SURE.value]] * 2
    assert stage.all_live()


async def test_a_lie_below_a_container_makes_nobody_a_victim(stage: Stage, bed: Bed) -> None:
    """A workload that names a cgroup of its own after another's container does not become that container."""
    liar, neighbour = stage.start(SAVES), stage.neighbour.containers["main"]
    uid, id_ = victim_of(neighbour)
    ledger: Ledger = bed.containerd.cgroups
    ledger.nest(liar.cgroup, f"kubepods/burstable/pod{uid}/{id_}", liar.pid)
    await stage.hold(neighbour, liar)
    assert stage.kill.held == {victim_of(neighbour), victim_of(liar)}
    assert await stage.kill.act(action(victim_of(liar)), DECISION) == Answer(Heard.ACCEPTED, ASKED)
    assert await gone(stage, action(victim_of(liar)), liar) == 0


@pytest.mark.fault(42)
async def test_what_was_searched_is_read_again(stage: Stage) -> None:
    """A number that changed hands since /proc was searched is not held: no init of another pod, no worker, no other."""
    main, neighbour = stage.start(SAVES), stage.neighbour.containers["main"]
    victim, inits = victim_of(main), Inits(Path("/proc"), USUAL, trusted=True)
    worker, dead = main.spawn("sleep", "600"), await asyncio.to_thread(ended_process)
    started = start_ticks(main.pid)
    assert started is not None
    for pid, start, why in (
        (neighbour.pid, start_ticks(neighbour.pid), Obstacle.NOT_SURE),
        (worker, start_ticks(worker), Obstacle.NOT_SURE),
        (main.pid, started - 1, Obstacle.NOT_SURE),
        (dead, started, Obstacle.NOT_FOUND),
    ):
        before = descriptors()
        assert start is not None
        assert inits.hold(victim, [Member(pid, (pid, 1), start)]) is why
        assert descriptors() == before
    held = inits.hold(victim, [Member(main.pid, (main.pid, 1), started)])
    assert isinstance(held, Hold)
    held.release()


async def test_an_init_that_left_its_container_lives(stage: Stage) -> None:
    """What is in another container's cgroup by now is not signalled, whatever it was when it was held."""
    main, neighbour = stage.start(SAVES), stage.neighbour.containers["main"]
    await stage.hold(main)
    stage.spare(main.pid)
    join(neighbour.cgroup, main.pid)
    answer = await stage.kill.act(action(victim_of(main)), DECISION)
    assert answer == Answer(Heard.CHANGED, "its init is no longer in its container")
    join(main.cgroup, main.pid)
    assert stage.kill.preflight(action(victim_of(main))) is None


# --- ends in between --------------------------------------------------------------------------------------------------


def end(container: Container, pid: int) -> None:
    """End a container's init and wait until its number is free."""
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: not Path(f"/proc/{pid}").exists(), what="the runtime reaped it")
    wait_until(lambda: not container.running, what="the runtime knows")


@pytest.mark.fault(41)
async def test_an_end_between_the_checks_is_noticed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An init that exits before /proc was read is gone by the poll that follows: what was read is not believed."""
    main = stage.start(SAVES)
    pid, real = main.pid, stage.kill._inits._proc.sample

    def sample(pids: list[int]) -> HostSample:
        end(main, pid)
        return real(pids)

    await stage.hold(main)
    monkeypatch.setattr(stage.kill._inits._proc, "sample", sample)
    answer = await stage.kill.act(action(victim_of(main)), DECISION)
    assert answer == Answer(Heard.GONE, "its init has exited")
    assert await stage.kill.ended(action(victim_of(main))) is True


@pytest.mark.fault(41)
async def test_an_end_just_before_the_signal_is_noticed(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """An init that exits after the last look is gone: the kernel's answer to the signal says so."""
    main = stage.start(SAVES)
    pid, real = main.pid, Inits.hears

    def hears(inits: Inits, hold: Any) -> bool:
        end(main, pid)
        return real(inits, hold)

    await stage.hold(main)
    monkeypatch.setattr(Inits, "hears", hears)
    answer = await stage.kill.act(action(victim_of(main)), DECISION)
    assert answer == Answer(Heard.GONE, "its init has exited")


@pytest.mark.fault(45)
async def test_a_zombie_has_exited(stage: Stage) -> None:
    """An init that its parent does not reap is gone: a signal would reach no process, and its end is seen."""
    main = stage.start(SAVES)
    pid, asked = main.pid, action(victim_of(main))
    shim = int(stat(pid)[1])
    await stage.hold(main)
    with stopped(shim):
        os.kill(pid, signal.SIGKILL)
        await until(lambda: stage.kill.ended(asked), "it exits")
        assert stat(pid)[0] == "Z"
        assert await stage.kill.act(asked, DECISION) == Answer(Heard.GONE, "its init has exited")
        fresh = Kill(Path("/proc"), USUAL, trusted=True)
        await fresh.hold([victim_of(main)])
        assert fresh.obstacles == {victim_of(main): Obstacle.NOT_FOUND}
    wait_until(lambda: not main.running, what="the runtime knows")


def killer(*words: str, below_: tuple[str, ...] = ()) -> Any:
    """Run killer.py as another process, below these words; what it says."""
    paths = os.pathsep.join(str(Path(__file__).parents[up]) for up in (1, 2))
    command = [*below_, sys.executable, str(Path(__file__).with_name("killer.py")), *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "PYTHONPATH": paths})
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.fault(42)
async def test_a_reused_number_is_another_process(stage: Stage, bed: Bed) -> None:
    """Another process with the number of the one that was held gets no signal, not even as init of the same cgroup."""
    main, other = stage.start(SAVES), stage.neighbour.containers["main"]
    main.stop()
    ledger: Ledger = bed.containerd.cgroups
    ledger.make(main.cgroup)
    words = ("reuse", *victim_of(main), main.cgroup, other.cgroup)
    began, told = killer(*words, below_=(*in_new_namespace("--mount-proc"),))
    assert began == [True, Heard.ACCEPTED.value, False]
    assert told == [[[Heard.GONE.value] * asked, True, True] for asked in (1, 3, 3)]


# --- rights -----------------------------------------------------------------------------------------------------------

ANOTHER_USER = 1000
NO_RIGHTS = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")
ONLY_KILL = ("setpriv", "--bounding-set=-all,+kill", "--inh-caps=-all")


async def test_cap_kill_is_enough(stage: Stage) -> None:
    """As root with no capability but CAP_KILL, a container of another user is held and ended."""
    main = stage.start(SAVES, user=ANOTHER_USER)
    assert user_of(main.pid) == ANOTHER_USER
    says, obstacles, answers = killer("ask", *victim_of(main), below_=ONLY_KILL)
    assert (says, obstacles) == (None, [])
    assert answers == [None, [Heard.ACCEPTED.value, ASKED]]
    wait_until(lambda: not main.running, what="it ends")
    assert main.status.exit_code == 0


@pytest.mark.fault(48)
async def test_without_cap_kill_nothing_is_sent(stage: Stage) -> None:
    """Without it the kernel's no is heard before anything is sent, and is known at the start."""
    main = stage.start(SAVES, user=ANOTHER_USER)
    stage.spare(main.pid)
    says, obstacles, answers = killer("ask", *victim_of(main), below_=NO_RIGHTS)
    assert "CAP_KILL is missing" in says
    assert obstacles == []
    assert [heard for heard, _ in answers] == [Heard.REFUSED.value] * 2
    assert all("does not let us" in detail for _, detail in answers)
    assert not (stage.folder / "saved").exists()


async def test_our_own_container_is_never_held(stage: Stage) -> None:
    """A daemon that runs in a container does not hold that container's init, whatever it is asked."""
    main = stage.start(SAVES)
    stage.spare(main.pid)
    procs = [str(below(root, main.cgroup) / "cgroup.procs") for root in hierarchies().kubelet]
    enter = ("sh", "-c", 'for procs in $0; do echo $$ > "$procs"; done; exec "$@"', " ".join(procs))
    _, obstacles, answers = killer("ask", *victim_of(main), below_=enter)
    assert obstacles == [Obstacle.OURS.value]
    assert answers == [[Heard.IMPOSSIBLE.value, Obstacle.OURS.value]] * 2
