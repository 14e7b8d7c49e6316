"""Promises of enforcer/actions/kill: which process is a container's init, and what the kernel must be able to do."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cache
from itertools import permutations
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from containers.killer import action
from enforcer.actions.interface import Answer, Heard
from enforcer.actions.kill.actuator import MOST, Kill
from enforcer.actions.kill.kubelet_mounts import Origin, learned
from enforcer.actions.kill.pidfds import unavailable
from enforcer.actions.kill.targets import (
    Member,
    Obstacle,
    hears_sigterm,
    init_of,
    levels_of,
    may_kill,
    pid_of,
)
from enforcer.actions.victim import accused, container_of
from enforcer.policy.vocabulary import State
from exporter.base.cgroup_owner import USUAL
from exporter.model import ContainerId, Owner, PodUid
from policy.scenes import GIB, Actor, Play

POD, OTHER_POD = PodUid("2c48913c-b29f-11e7-9350-020968147796"), PodUid("a2830d0d-b0f0-4ff0-81b5-0ee4e299cf80")
MAIN, OTHER = ContainerId("9" * 64), ContainerId("0123456789abcdef" * 4)
INIT, WORKER = Member(4711, (4711, 1), 1000), Member(4720, (4720, 12), 1100)
OF_ITS_OWN_MAKING = Member(4730, (4730, 57, 1), 1200)
ON_THE_HOST = Member(4740, (4740,), 1300)
ANOTHER_INIT = Member(4800, (4800, 1), 1400)
MOUNTED = replace(INIT, origin=Origin.OWN)

# From /proc/<pid>/status of a busybox in a container of containerd 1.6, Linux 6.18; lines of no concern left out.
STATUS = """Name:\tsh
Umask:\t0022
State:\tS (sleeping)
Tgid:\t31337
Pid:\t31337
PPid:\t31300
NStgid:\t31337\t1
NSpid:\t31337\t1
Threads:\t1
SigQ:\t0/95838
SigPnd:\t0000000000000000
ShdPnd:\t0000000000000000
SigBlk:\t{blocked:016x}
SigIgn:\t{ignored:016x}
SigCgt:\t{caught:016x}
CapInh:\t0000000000000000
CapPrm:\t00000000a80425fb
CapEff:\t{capabilities:016x}
"""
SIGTERM = 1 << (signal.SIGTERM - 1)


def status(*, blocked: int = 0, ignored: int = 0, caught: int = 0, capabilities: int = 0) -> str:
    return STATUS.format(blocked=blocked, ignored=ignored, caught=caught, capabilities=capabilities)


def test_the_init_that_a_shared_claim_may_end_is_held() -> None:
    """It is of the pod that holds most by the claim. An init that is not held cannot be signalled."""
    claim = {"scope": "claim", "claim": "team/shared"}
    largest, other = Actor("rank-0", 40 * GIB, **claim), Actor("rank-1", 30 * GIB, **claim)  # type: ignore[arg-type]
    verdict = Play().until(State.GRACE, largest, other)
    assert list(accused(verdict.standings)) == [(largest.pod_uid, largest.id)]


# --- whose init -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("others", [*permutations([WORKER, OF_ITS_OWN_MAKING, ON_THE_HOST, ANOTHER_INIT], 2)])
def test_the_init_is_the_first_of_the_containers_own_namespace(others: tuple[Member, ...]) -> None:
    """A worker, an init that the workload made, and whatever came into the cgroup later do not change that."""
    for order in permutations([INIT, *others]):
        assert init_of(order) == INIT


def mounted(member: Member) -> Member:
    return replace(member, origin=Origin.OWN)


def older(member: Member, origin: Origin) -> Member:
    return replace(member, start=INIT.start - 500, origin=origin)


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(older(ANOTHER_INIT, Origin.ANOTHER), id="the init of another pod"),
        pytest.param(older(ANOTHER_INIT, Origin.UNKNOWN), id="an init with no mounts of a pod"),
        pytest.param(older(ON_THE_HOST, Origin.ANOTHER), id="a process of a pod in the host's namespace"),
        pytest.param(older(ON_THE_HOST, Origin.UNKNOWN), id="a process of the host"),
        pytest.param(older(WORKER, Origin.UNKNOWN), id="a worker of another container"),
        pytest.param(mounted(ANOTHER_INIT), id="a younger init that entered the container's mounts"),
    ],
)
def test_what_was_moved_into_the_cgroup_is_no_init_and_no_protection(moved: Member) -> None:
    """However old it is: the init with the mounts of its container is chosen."""
    for order in permutations([MOUNTED, WORKER, moved]):
        assert init_of(order) == MOUNTED


def test_an_init_protects_itself_by_no_mounts() -> None:
    """A tenant can hide mounts: with nothing moved into its cgroup, its init is chosen all the same."""
    hidden = replace(INIT, origin=Origin.UNKNOWN)
    executed = mounted(ON_THE_HOST)
    assert init_of([hidden, WORKER, executed]) == hidden


@pytest.mark.parametrize(
    ("members", "why"),
    [
        pytest.param([], Obstacle.NOT_FOUND, id="nobody"),
        pytest.param([ON_THE_HOST], Obstacle.HOST, id="hostPID"),
        pytest.param([WORKER], Obstacle.SHARED, id="shareProcessNamespace"),
        pytest.param([WORKER, OF_ITS_OWN_MAKING], Obstacle.SHARED, id="an init inside of a shared namespace"),
        pytest.param(
            [ON_THE_HOST, ANOTHER_INIT], Obstacle.HOST, id="an init made by a process of the host's namespace"
        ),
        pytest.param(
            [older(ON_THE_HOST, Origin.UNKNOWN), mounted(ON_THE_HOST), mounted(ANOTHER_INIT)],
            Obstacle.HOST,
            id="the same, with an older process of the host",
        ),
        pytest.param([replace(INIT, origin=Origin.ANOTHER)], Obstacle.NOT_SURE, id="another pod's alone"),
        pytest.param([Member(4711, (99, 1), 1000)], Obstacle.SHARED, id="a number of another namespace"),
    ],
)
def test_where_no_init_is_certain_there_is_none(members: list[Member], why: Obstacle) -> None:
    """A shared PID namespace, or one made inside, has another init: then no process is chosen instead."""
    for order in permutations(members):
        assert init_of(order) is why


# --- mounts of the kubelet --------------------------------------------------------------------------------------------

# From a pod of Kubernetes 1.34 and containerd, lines of no concern left out; the device is the node's disk.
MOUNTINFO = """1214 1109 0:79 / / rw,relatime master:255 - overlay overlay rw,lowerdir=/x,upperdir=/y,workdir=/z
1215 1214 0:82 / /proc rw,nosuid,nodev,noexec,relatime - proc proc rw
1220 1214 254:0 {folder}/pods/{pod}/etc-hosts /etc/hosts rw,relatime - ext4 /dev/vda rw
1221 1214 254:0 {folder}/pods/{pod}/containers/main/5f3a8c21 /dev/termination-log rw,relatime - ext4 /dev/vda rw
1222 1214 254:0 /run/sandboxes/{id}/hostname /etc/hostname rw,relatime - ext4 /dev/vda rw
"""


def mountinfo(pod: str, folder: str = "/var/lib/kubelet") -> str:
    return MOUNTINFO.format(pod=pod, folder=folder, id=OTHER)


@pytest.mark.parametrize("folder", ["", "/var/lib/kubelet", "/data/my\\040kubelet", "/pods/kubelet"])
def test_the_kubelets_mounts_say_of_which_pod_a_container_is(folder: str) -> None:
    """Whatever its folder, and whether that is a file system of its own; learned from the daemon's own container."""
    kubelet = learned(mountinfo("0" * 32, folder))
    assert kubelet is not None
    assert kubelet.origin(mountinfo(POD, folder), POD) is Origin.OWN
    assert kubelet.origin(mountinfo(POD, folder), OTHER_POD) is Origin.ANOTHER
    assert kubelet.origin("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n", POD) is Origin.UNKNOWN


@pytest.mark.parametrize(
    "made",
    [
        pytest.param("1221 1214 0:99 {folder}/x /dev/y rw - tmpfs tmpfs rw", id="on a file system of the tenant's"),
        pytest.param("1221 1214 254:0 /srv{folder}/x /dev/y rw - ext4 /dev/vda rw", id="in another folder of the disk"),
        pytest.param("1221 1214 254:0 /x {folder}/x rw - ext4 /dev/vda rw", id="as a mount point"),
        pytest.param("1221 1214 0:79 / / rw - overlay {folder}/x rw,lowerdir={folder}/x", id="as a source"),
    ],
)
def test_a_tenant_cannot_make_a_mount_that_names_a_pod(made: str) -> None:
    """A user namespace lets it mount what it likes, and bind its own folders; none of that is the kubelet's."""
    kubelet = learned(mountinfo(POD))
    assert kubelet is not None
    text = made.format(folder=f"/var/lib/kubelet/pods/{OTHER_POD}/containers/main")
    assert kubelet.origin(f"{text}\n", POD) is Origin.UNKNOWN
    assert kubelet.origin(f"{text}\n{mountinfo(POD)}", POD) is Origin.OWN


def test_outside_of_a_pod_nothing_is_learned() -> None:
    """A daemon that systemd started has no container's mounts, and no mount names a pod then."""
    assert learned("") is None
    assert learned("27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n") is None


def test_what_can_change_is_looked_for_again() -> None:
    """Whatever was read from processes may have been forged for a moment; the daemon's own container stays its own."""
    assert {why for why in Obstacle if why.lasting} == {Obstacle.OURS}


@pytest.mark.parametrize(
    ("path", "victim"),
    [
        pytest.param(f"/kubepods/burstable/pod{POD}/{MAIN}", (POD, MAIN), id="cgroupfs"),
        pytest.param(f"/kubelet/kubepods/pod{POD}/{MAIN}", (POD, MAIN), id="in a kind node"),
        pytest.param(f"/docker/{OTHER}/kubepods/pod{POD}/{MAIN}", None, id="another kubelet's"),
        pytest.param(f"/user.slice/user-1000.slice/pod{POD}/{MAIN}", None, id="a user's own folder"),
        pytest.param(f"/kubepods/pod{POD}/{MAIN}/kubepods/pod{OTHER_POD}/{OTHER}", (POD, MAIN), id="a lie below"),
        pytest.param(f"/kubepods/pod{POD}/{MAIN}/docker/{OTHER}", (POD, MAIN), id="docker in a pod"),
        pytest.param(f"/kubepods/pod{POD}", None, id="sandboxed", marks=pytest.mark.fault(35)),
        pytest.param(f"/system.slice/docker-{OTHER}.scope", None, id="a container of no pod"),
        pytest.param(f"/../cri-containerd-{OTHER}.scope", None, id="a sibling, from a private namespace"),
        pytest.param("/", None, id="a kernel thread"),
        pytest.param("/init.scope", None, id="pid 1 of the host"),
    ],
)
def test_a_process_is_of_the_outermost_pods_container(path: str, victim: tuple[PodUid, ContainerId] | None) -> None:
    """A cgroup that a workload makes below its own, under any name, does not make it another container."""
    assert container_of(USUAL.owner(f"0::{path}\n")) == victim


def test_a_contradiction_is_nobody() -> None:
    """Hierarchies that name different pods, and a cgroup that could not be read, name no container."""
    contradictory = USUAL.owner(f"2:cpu:/kubepods/pod{POD}/{MAIN}\n1:memory:/kubepods/pod{OTHER_POD}/{OTHER}\n")
    assert contradictory.contradictory
    assert container_of(contradictory) is None
    assert container_of(Owner(((POD, MAIN),), contradictory=True)) is None
    assert container_of(None) is None


# --- records ----------------------------------------------------------------------------------------------------------


def test_the_numbers_of_a_process() -> None:
    """The number in the reader's namespace comes first."""
    assert levels_of(status()) == (31337, 1)
    assert pid_of("pos:\t0\nflags:\t02000002\nmnt_id:\t15\nino:\t4711\nPid:\t31337\nNSpid:\t31337\t1\n") == 31337
    assert pid_of("pos:\t0\nflags:\t02000002\nPid:\t-1\nNSpid:\t-1\n") == -1


@given(st.text(st.characters(exclude_characters="\n"), max_size=15))
def test_a_name_decides_nothing(name: str) -> None:
    """A process that calls itself `NSpid: 1 1` is not taken for another one."""
    assert levels_of(status().replace("Name:\tsh", f"Name:\t{name}")) == (31337, 1)


@pytest.mark.parametrize("name", ["NSpid:\t1\t1", "x\\nNSpid:\t1\t1", "x\rNSpid:\t1\t1", "x\u2028NSpid:\t1\t1"])
def test_a_name_that_looks_like_the_field(name: str) -> None:
    """The kernel escapes the line feed; no other character begins a line."""
    assert levels_of(status().replace("Name:\tsh", f"Name:\t{name}")) == (31337, 1)


@pytest.mark.parametrize("text", ["", "NSpid:", "NSpid:\tx\n", "Pid:\t1\n"])
def test_what_is_no_status_raises_value_error(text: str) -> None:
    """A record without the field, or with something else in it, is not read as some process."""
    with pytest.raises(ValueError, match=r"NSpid|invalid literal"):
        levels_of(text)


@pytest.mark.parametrize(
    ("text", "hears"),
    [
        pytest.param(status(caught=SIGTERM), True, id="a handler"),
        pytest.param(status(blocked=SIGTERM), True, id="sigwait or signalfd, as tini and dumb-init"),
        pytest.param(status(), False, id="at its default"),
        pytest.param(status(ignored=SIGTERM), False, id="ignored"),
        pytest.param(status(caught=~SIGTERM & (1 << 64) - 1, blocked=SIGTERM << 1), False, id="all others"),
    ],
)
def test_who_hears_sigterm(text: str, hears: bool) -> None:
    """An init hears what it catches or waits for; what stands at its default the kernel drops."""
    assert hears_sigterm(text) is hears


def test_who_may_signal_others() -> None:
    """CAP_KILL alone is enough, and all others together are not."""
    assert may_kill(status(capabilities=1 << 5))
    assert not may_kill(status(capabilities=~(1 << 5) & (1 << 41) - 1))


# --- real processes ---------------------------------------------------------------------------------------------------


@contextmanager
def python(script: str) -> Iterator[int]:
    """A Python process that runs `script`, up to where that prints; ended afterwards."""
    with subprocess.Popen([sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"ready\n"
            yield process.pid
        finally:
            process.kill()


@pytest.mark.parametrize(
    ("does", "hears"),
    [
        ("signal.signal(signal.SIGTERM, lambda *_: None)", True),
        ("signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})", True),
        ("signal.signal(signal.SIGTERM, signal.SIG_IGN)", False),
        ("signal.signal(signal.SIGTERM, signal.SIG_DFL)", False),
    ],
)
def test_the_kernel_says_who_hears_sigterm(does: str, hears: bool) -> None:
    """The masks of real processes that catch, block, ignore it, or leave it at its default."""
    with python(f"import signal; {does}; print('ready', flush=True); input()") as pid:
        assert hears_sigterm(Path(f"/proc/{pid}/status").read_text()) is hears


def descriptors() -> set[Path]:
    return {*Path("/proc/self/fd").iterdir()}


async def test_who_has_no_process_is_not_held() -> None:
    """A container that does not run is not found, and costs no descriptor. The number that is looked for is bounded."""
    kill, files = Kill(Path("/proc"), USUAL, trusted=True), descriptors()
    victims = [(POD, ContainerId(f"{number:064x}")) for number in range(MOST + 10)]
    await kill.hold(victims)
    assert kill.obstacles == dict.fromkeys(victims[:MOST], Obstacle.NOT_FOUND)
    assert not kill.held
    await kill.hold([])
    assert not kill.obstacles
    assert descriptors() == files


async def test_a_proc_that_is_not_there(tmp_path: Path) -> None:
    """Where nothing can be read, no process is held, and none counts as gone."""
    kill = Kill(tmp_path / "proc", USUAL)
    await kill.hold([(POD, MAIN)])
    assert kill.obstacles == {(POD, MAIN): Obstacle.UNREADABLE}
    assert await kill.ended(action((POD, MAIN))) is None
    assert "shows no processes" in str(unavailable(tmp_path / "proc"))


def test_a_missing_right_counts_only_where_rights_count(tmp_path: Path) -> None:
    """Without CAP_KILL no container of another user can be signalled; a dry run is not given that right."""
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "status").write_text(status(capabilities=0))
    assert "CAP_KILL is missing" in str(unavailable(Path("/proc"), trusted=True, own=tmp_path))
    assert unavailable(Path("/proc"), trusted=True, rights=False, own=tmp_path) is None


WITHOUT = """
import ctypes, json, os, struct, sys
from pathlib import Path
from enforcer.actions.kill.pidfds import unavailable

def keep(number, error):
    # A seccomp filter: the system call of this number (the same on each architecture) fails with this error.
    steps = [(0x20, 0, 0, 0), (0x15, 0, 1, number), (0x06, 0, 0, 0x00050000 | error), (0x06, 0, 0, 0x7FFF0000)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
    program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0  # PR_SET_NO_NEW_PRIVS
    assert libc.prctl(22, 2, program, 0, 0) == 0, os.strerror(ctypes.get_errno())  # PR_SET_SECCOMP

for number, error in json.loads(sys.argv[1]):
    if os.fork() == 0:
        keep(number, error)
        print(json.dumps((why := unavailable(Path("/proc"), trusted=True)) and str(why)), flush=True)
        os._exit(0)
    if os.wait()[1] != 0:
        print("null", flush=True)
"""
PIDFD_SEND_SIGNAL, PIDFD_OPEN = 424, 434
ENOSYS, EPERM = 38, 1
WITHOUT_PIDFDS = [
    pytest.param(PIDFD_OPEN, ENOSYS, "Function not implemented", id="a kernel before 5.3"),
    pytest.param(PIDFD_OPEN, EPERM, "Operation not permitted", id="a strict seccomp profile"),
    pytest.param(PIDFD_SEND_SIGNAL, EPERM, "Operation not permitted", id="one that forbids only the signal"),
]


@cache
def told_without_pidfds() -> Mapping[tuple[object, object], str]:
    """What is said in a process behind each of these filters; one Python forks them all: it takes 0.15 s to begin."""
    filters = [(one.values[0], one.values[1]) for one in WITHOUT_PIDFDS]
    command = [sys.executable, "-c", WITHOUT, json.dumps(filters)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(filters, map(json.loads, done.stdout.splitlines()), strict=True))


@pytest.mark.parametrize(("number", "error", "says"), WITHOUT_PIDFDS)
def test_without_pidfds_the_rung_is_not_there(number: int, error: int, says: str) -> None:
    """Where the kernel has no pidfds, or does not let us have them, that is said; nothing stands in for them."""
    told = told_without_pidfds()[number, error]
    assert f"({says})" in told
    assert "Linux 5.3" in told


@pytest.mark.parametrize("obstacle", Obstacle)
def test_a_container_that_cannot_be_signalled_is_told_from_one_that_was_not_found(obstacle: Obstacle) -> None:
    """What the container's own making prevents is impossible, and the pod evades. All else is a failure of ours."""
    kill = Kill(Path("/proc"), USUAL, trusted=True)
    kill._obstacles = {(POD, MAIN): obstacle}
    answer = kill.preflight(action((POD, MAIN)))
    theirs = obstacle in (Obstacle.HOST, Obstacle.SHARED, Obstacle.OURS, Obstacle.NOT_SURE)
    assert answer == Answer(Heard.IMPOSSIBLE if theirs else Heard.FAILED, obstacle.value)


async def test_a_container_that_runs_does_not_deny_that_it_was_signalled() -> None:
    """A signal leaves no trace in a process that ignores it; only its end confirms anything."""
    kill = Kill(Path("/proc"), USUAL, trusted=True)
    assert await kill.confirmed(action((POD, MAIN))) in (True, None)
