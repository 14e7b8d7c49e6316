"""
The seccomp profiles of deploy/profiles: what they forbid, and what uid 0 without capabilities can do without them.

In: the profiles, loaded by libseccomp. Out: what the kernel answers. Law: each call that is forbidden is one that this
kernel answers otherwise without the profile; so are the attacks on real processes.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from errno import ENOSYS, EPERM
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from cluster.fixtures import require
from patience import PATIENCE
from profiles import loader

PROFILES = Path(__file__).parents[2] / "deploy/profiles"
OBSERVE, KILL = PROFILES / "gpusteward.json", PROFILES / "gpusteward-kill.json"
BARE = ("setpriv", "--bounding-set=-all", "--inh-caps=-all", "--no-new-privs")
"""Words before a command that runs with the daemon's rights: uid 0, no capability."""

PYTHON = (sys.executable, "-I", "-S")
"""Python without the packages of this environment, whose folders it would look through first: half of its start."""

FORBIDDEN = {
    # other processes: their memory, descriptors, pages
    *("ptrace", "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp", "pidfd_getfd", "move_pages"),
    # their signals, their priority
    *("kill", "tkill", "tgkill", "rt_sigqueueinfo", "rt_tgsigqueueinfo"),
    *("setpriority", "sched_setaffinity", "sched_setscheduler", "sched_setattr", "ioprio_set"),
    # mounts and namespaces
    *("mount", "umount2", "pivot_root", "chroot", "setns", "unshare", "move_mount", "fsopen", "open_tree"),
    # the kernel, its keys
    *("bpf", "perf_event_open", "init_module", "finit_module", "kexec_load", "io_uring_setup", "userfaultfd", "syslog"),
    *("reboot", "keyctl", "add_key", "request_key"),
    # files past their paths, programs without a file
    *("open_by_handle_at", "name_to_handle_at", "mknodat", "linkat", "symlinkat", "fchownat", "setxattr"),
    *("memfd_create", "execveat"),
}
ASK = """
import ctypes, json, os, sys
from errno import ENOSYS
libc = ctypes.CDLL(None, use_errno=True)
seccomp = ctypes.CDLL("libseccomp.so.2")
answers = {}
for name in sys.argv[1:]:
    number = seccomp.seccomp_syscall_resolve_name(name.encode())
    assert number != -1, name
    # Numbers that are nobody's, and addresses at which nothing is: no call does anything.
    failed = libc.syscall(number, *[ctypes.c_long(-1)] * 6) == -1
    answers[name] = ctypes.get_errno() if failed else 0
print(json.dumps(answers))
"""
WITH_ARGUMENTS = """
import ctypes, fcntl, json, os, resource, socket, struct
def of(call, *arguments):
    try:
        call(*arguments)
    except OSError as error:
        return error.errno
    except Exception as error:
        return repr(error)
    return 0
ours, _ = socket.socketpair()
libc = ctypes.CDLL(None, use_errno=True)
def raw(number, *arguments):
    if libc.syscall(number, *map(ctypes.c_ulong, arguments)) == -1:
        raise OSError(ctypes.get_errno(), "")
def new_process():
    if (child := os.fork()) == 0:
        os._exit(0)
    os.waitpid(child, 0)
F_SETSIG, FIOSETOWN, SIOCSPGRP, nobody = 10, 0x8901, 0x8902, ctypes.c_int(0)
me = struct.pack("i", os.getpid())
print(json.dumps({
    "own a descriptor": of(fcntl.fcntl, ours, fcntl.F_SETOWN, os.getpid()),
    "choose its signal": of(fcntl.fcntl, ours, F_SETSIG, 10),
    "own it by ioctl": of(fcntl.ioctl, ours, FIOSETOWN, me),
    "own it by another ioctl": of(fcntl.ioctl, ours, SIOCSPGRP, me),
    "own it by a long ioctl": of(raw, IOCTL, ours.fileno(), 0x7700000000 + FIOSETOWN, ctypes.addressof(nobody)),
    "limits of another": of(resource.prlimit, os.getppid(), resource.RLIMIT_CORE),
    "packets of the host": of(socket.socket, socket.AF_PACKET, socket.SOCK_RAW),
    "the audit system": of(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW, 9),
    "a new process": of(new_process),
}))
"""


@pytest.fixture(autouse=True)
def seccomp() -> None:
    """This machine has libseccomp, as each with runc has."""
    try:
        loader.library()
    except OSError:
        require([f"{loader.LIBRARY} is missing (Debian's libseccomp2)"])


def under(profile: Path) -> list[str]:
    """Words before a command that runs under the profile."""
    return [*PYTHON, str(Path(loader.__file__)), str(profile)]


def said(*command: str, before: list[str] | None = None) -> Any:
    """Run a Python script; what it says as JSON."""
    words = [*(before or []), *PYTHON, "-c", *command]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@cache
def said_without(*command: str) -> Any:
    """The same without a profile: once for all profiles."""
    return said(*command)


@pytest.mark.parametrize("profile", [OBSERVE, KILL], ids=lambda one: one.stem)
def test_what_the_daemon_never_calls_is_not_there(profile: Path) -> None:
    """Each of these calls looks like one that the kernel does not have, and this kernel has it."""
    plain = said_without(ASK, *sorted(FORBIDDEN))
    known = {name for name, error in plain.items() if error != ENOSYS}
    assert known >= {"ptrace", "process_vm_readv", "kill", "mount", "setns", "keyctl", "perf_event_open"}
    assert said(ASK, *sorted(known), before=under(profile)) == dict.fromkeys(known, ENOSYS)


@pytest.mark.parametrize("profile", [OBSERVE, KILL], ids=lambda one: one.stem)
def test_a_call_is_allowed_for_what_the_daemon_does_with_it(profile: Path) -> None:
    """No owner of a descriptor, to whom the kernel sends signals; no limits of others; no odd socket; no process."""
    ioctl = loader.library().seccomp_syscall_resolve_name(b"ioctl")
    script = WITH_ARGUMENTS.replace("IOCTL", str(ioctl))
    free = said_without(script)
    assert set(free.values()) <= {0, EPERM}, "the kernel knows all of it"
    assert said(script, before=under(profile)) == dict.fromkeys(free, ENOSYS)


def test_the_profile_for_kill_adds_pidfds_alone() -> None:
    """Beside them it is the other one; through a pidfd go SIGTERM, SIGKILL, and the question whether they may."""
    observe, kill = (json.loads(one.read_text()) for one in (OBSERVE, KILL))
    more = kill["syscalls"][len(observe["syscalls"]) :]
    assert {**kill, "syscalls": kill["syscalls"][: len(observe["syscalls"])]} == observe
    assert {name for rule in more for name in rule["names"]} == {"pidfd_open", "pidfd_send_signal"}
    script = """
import json, os, signal
fd = os.pidfd_open(os.getpid())
signal.signal(signal.SIGTERM, lambda *_: None)
answers = {}
for number in (0, signal.SIGTERM, signal.SIGSTOP, signal.SIGUSR1):
    try:
        signal.pidfd_send_signal(fd, number)
    except OSError as error:
        answers[int(number)] = error.errno
print(json.dumps(answers))
"""
    assert said(script, before=under(KILL)) == {str(int(one)): ENOSYS for one in (signal.SIGSTOP, signal.SIGUSR1)}


@pytest.mark.parametrize("profile", [OBSERVE, KILL], ids=lambda one: one.stem)
def test_a_runtime_takes_the_profile_on_each_architecture(profile: Path) -> None:
    """Only the native architecture is open, whichever it is; each name is a call of x86-64 or of arm64."""
    content = json.loads(profile.read_text())
    assert "architectures" not in content
    assert (content["defaultAction"], content["defaultErrnoRet"]) == ("SCMP_ACT_ERRNO", ENOSYS)
    x86_64, arm64 = 0xC000003E, 0xC00000B7
    for rule in content["syscalls"]:
        assert rule["action"] == "SCMP_ACT_ALLOW", "an action that is the default is an error to libseccomp"
        for name in rule["names"]:
            resolve = loader.library().seccomp_syscall_resolve_name_arch
            assert max(resolve(one, name.encode()) for one in (x86_64, arm64)) >= 0, name


ATTACK = """
import ctypes, fcntl, os, resource, signal, socket, sys
way, pid = sys.argv[1], int(sys.argv[2])
libc = ctypes.CDLL(None, use_errno=True)
def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), way)
def signal_by_a_socket():
    ours, theirs = socket.socketpair()
    fcntl.fcntl(ours, fcntl.F_SETOWN, pid)
    fcntl.fcntl(ours, 10, signal.SIGKILL)  # F_SETSIG
    fcntl.fcntl(ours, fcntl.F_SETFL, os.O_ASYNC)
    theirs.send(b"x")
def attach():
    checked(libc.ptrace(16, pid, 0, 0))
    os.waitpid(pid, 0)
    checked(libc.ptrace(8, pid, 0, 0))  # PTRACE_KILL
ways = {
    "kill": lambda: os.kill(pid, signal.SIGKILL),
    "pidfd": lambda: signal.pidfd_send_signal(os.pidfd_open(pid), signal.SIGKILL),
    "socket": signal_by_a_socket,
    "ptrace": attach,
    "prlimit": lambda: resource.prlimit(pid, resource.RLIMIT_NOFILE, (0, 0)),
    "environ": lambda: print(open(f"/proc/{pid}/environ").read()),
    "memory": lambda: open(f"/proc/{pid}/mem", "r+b").close(),
    "root": lambda: os.listdir(f"/proc/{pid}/root"),
    "oom": lambda: open(f"/proc/{pid}/oom_score_adj", "w").write("1000"),
}
try:
    ways[way]()
except OSError as error:
    sys.exit(f"refused: {error}")
"""
VICTIMS = {
    "bare": BARE,  # as the daemon: uid 0, no capability
    "whole": (),  # as a system daemon: uid 0, all capabilities
    "user": (*BARE, "--reuid=65534", "--regid=65534", "--clear-groups"),
}
SIGNALS = {"kill", "pidfd", "socket"}
REACH = {
    "bare": {*SIGNALS, "ptrace", "prlimit", "environ", "memory", "root", "oom"},
    "whole": {"kill", "pidfd", "socket", "prlimit", "oom"},
    "user": {"socket"},
}
"""What uid 0 without a capability can do to these processes: kill(2), ptrace(2), prlimit(2), fcntl(2); Linux 6.18."""
FILES = {"environ", "memory", "root", "oom"}
"""What seccomp cannot tell from the reading of another file; docs/hardening.md says who can."""


@contextmanager
def victim(kind: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that sleeps, once it is one."""
    with ExitStack() as stack:
        ready, inside = os.pipe()
        script = f"import os, time; os.write({inside}, b'x'); time.sleep(600)"
        process = subprocess.Popen([*VICTIMS[kind], sys.executable, "-c", script], pass_fds=[inside])
        stack.callback(process.wait)
        stack.callback(process.kill)
        os.read(ready, 1)
        for one in (ready, inside):
            os.close(one)
        yield process


@pytest.mark.containers
@pytest.mark.parametrize("kind", VICTIMS)
@pytest.mark.parametrize("way", sorted(REACH["bare"]))
def test_what_uid_0_without_capabilities_reaches_and_what_the_profile_leaves_of_it(kind: str, way: str) -> None:
    """It reaches what the threat model says, and no more. Under the profile nothing of it is left but files."""
    require([] if os.geteuid() == 0 else ["root is needed to be uid 0 without capabilities"])
    for before, reached in (([], REACH[kind]), (under(OBSERVE), REACH[kind] & FILES)):
        with victim(kind) as process:
            command = [*BARE, *before, sys.executable, "-c", ATTACK, way, str(process.pid)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if way in SIGNALS & reached:
                assert process.wait(PATIENCE) == -signal.SIGKILL
            elif way in SIGNALS:
                assert process.poll() is None
            if way != "socket" or before:  # the kernel takes an owner without a word, and then sends it nothing
                assert (done.returncode == 0) is (way in reached), done.stderr
