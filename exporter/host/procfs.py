"""
The processes behind the driver's PIDs, read from `/proc`.

What comes in: raw PIDs as the driver printed them. What goes out: a `HostSample`.

The rule: each answer is about one process, and fresh. A PID is read through its opened folder, which the kernel ties to
the process. Once the process is gone, the folder gives ENOENT or ESRCH, even if another process has the PID by then. So
state, start time and cgroup cannot come from two processes. "Gone" is an answer; "hidden" is not, it is `unreadable`.
With `remember`, a process that was read before is confirmed to be the same one (`exporter.host.remembered`).
"""

import os
from collections.abc import Callable, Collection, Iterator, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from exporter.base.cgroup_owner import USUAL, PodCgroups
from exporter.host.pid_domain import proc_root, unproven
from exporter.host.remembered import Remembered
from exporter.host.stat import Stat, parse_stat, parse_tgid
from exporter.model import Fault, HostProcess, HostSample, Owner, ProcessKey

__all__ = ["ProcFs", "proc_root"]

_GONE = (FileNotFoundError, ProcessLookupError)
_CHUNK = 16384
_SHOWN = 60
SHARED_OWNERS = 2**10
"""Owners that are kept to be shared: 0.5 MB."""

_Parse = Callable[[str], Owner]


@dataclass(frozen=True, slots=True)
class _Odd:
    """Processes to tell of: unreadable ones, and those in a cgroup that names a pod outside of the kubelet's."""

    pods: PodCgroups
    hidden: dict[int, Exception] = field(default_factory=dict)
    elsewhere: dict[int, str] = field(default_factory=dict)

    def look(self, pid: int, text: str) -> None:
        """Look whether a process of the host is in a folder that is called as a pod's."""
        if "pod" in text and (folder := self.pods.elsewhere(text)) is not None:
            self.elsewhere[pid] = folder

    def faults(self, root: Path, *, incomplete: bool) -> Iterator[Fault]:
        """Report both as faults."""
        if self.hidden:
            pid, error = next(iter(self.hidden.items()))
            why = error.strerror if isinstance(error, OSError) else error
            message = f"cannot read {root}/{pid}: {why}{_and_more(self.hidden)}"
            yield Fault("host", "processes_unreadable", message, subject=str(root), incomplete=incomplete)
        if self.elsewhere:
            pid, folder = next(iter(self.elsewhere.items()))
            message = (
                f"process {pid}{_and_more(self.elsewhere)} counts as a host process: its cgroup names a pod in "
                f"{shown(folder)}, and the kubelet's pods are in {self.pods.described}"
            )
            yield Fault("host", "pods_elsewhere", message, subject=str(root), incomplete=False)


class ProcFs:
    """A `HostSource` over a mounted procfs. Needs no privilege: `stat`, `status` and `cgroup` are readable by all."""

    def __init__(
        self,
        root: Path,
        *,
        pods: PodCgroups = USUAL,
        trusted: bool = False,
        own: Path = Path("/proc"),
        remember: Remembered | None = None,
    ) -> None:
        """
        Read `root`. `pods` says which cgroups are the kubelet's.

        `trusted` replaces the proof of the PID domain, which compares `root` with `own`. Without `remember` each
        process is read anew, as is right before an action.
        """
        self._root = root
        self._pods = pods
        self._trusted = trusted
        self._own = own
        self._remembered = remember
        self._owners: dict[Owner, Owner] = {}

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """
        Identify the process of each raw PID. `want_living` also reads the owners of all living processes of the node.

        Without proof of the PID domain nothing is read: each PID would mean another process.
        """
        doubt = unproven(self._root, self._own, trusted=self._trusted)
        if doubt is not None:
            return HostSample(faults=(Fault("host", "pid_domain_unproven", str(doubt), subject=str(self._root)),))
        parse = cache(self._owner)  # for this sample: the processes of a container share one text
        processes: dict[int, HostProcess] = {}
        odd = _Odd(self._pods)
        # A look without PIDs may come while another thread, which is late, still asks.
        remembered = self._remembered if pids else None
        if remembered is not None:
            remembered.look()
        for pid in pids:
            if remembered is not None and (known := remembered.again(pid)) is not None:
                processes[pid] = known
                continue
            try:
                processes[pid] = self._process(pid, parse, odd)
            except _GONE:
                continue
            except (OSError, ValueError) as error:
                odd.hidden[pid] = error
                continue
            if remembered is not None and pid not in odd.hidden and pid not in odd.elsewhere:
                processes[pid] = remembered.learn(pid, processes[pid])
        if remembered is not None:
            remembered.forget(len(pids))
        unreadable = frozenset(odd.hidden.keys() - processes.keys())
        living = self._living(parse, odd) if want_living else None
        faults = tuple(odd.faults(self._root, incomplete=bool(unreadable)))
        return HostSample(processes, unreadable, living, pid_domain_proven=True, faults=faults)

    def _owner(self, text: str) -> Owner:
        """Name the owner. Up to a number of them, equal owners are one object, also in different rounds."""
        owner = self._pods.owner(text)
        if (known := self._owners.get(owner)) is not None:
            return known
        if len(self._owners) >= SHARED_OWNERS:
            self._owners.clear()
        return self._owners.setdefault(owner, owner)

    def _process(self, raw: int, parse: _Parse, odd: _Odd) -> HostProcess:
        with _folder(self._root, raw) as task:
            pid = parse_tgid(_read(task, "status"))
            if pid == raw:
                return _look(task, pid, parse, odd)
            with _folder(self._root, pid) as leader:
                host_process = _look(leader, pid, parse, odd)
                os.stat(f"task/{raw}", dir_fd=leader)  # ENOENT unless this is still the process that the thread named
                return host_process

    def _living(self, parse: _Parse, odd: _Odd) -> frozenset[Owner]:
        living: set[Owner] = set()
        for pid in [int(entry.name) for entry in self._root.iterdir() if entry.name.isdecimal()]:
            try:
                with _folder(self._root, pid) as process:
                    owner = parse(_read(process, "cgroup"))
                    if owner.pairs and owner in living:
                        continue
                    host_process = _look(process, pid, parse, odd)
            except _GONE:
                continue
            except (OSError, ValueError) as error:
                odd.hidden[pid] = error
                continue
            if host_process.alive and host_process.owner is not None:
                living.add(host_process.owner)
        return frozenset(living)


def _look(process: int, pid: int, parse: _Parse, odd: _Odd) -> HostProcess:
    """Read a process by its opened folder. If its cgroup cannot be read, the rest is known, and why is in `odd`."""
    stat = parse_stat(_read(process, "stat"))
    owner = None
    try:
        owner = _owner(process, stat, parse, pid, odd)
    except _GONE:
        raise
    except (OSError, ValueError) as error:
        # Folders deeper than PATH_MAX may give ENAMETOOLONG (6.18 cuts the path at its end, which does no harm).
        odd.hidden[pid] = error
    return HostProcess(ProcessKey(pid, stat.start_ticks), stat.alive, owner)


def _owner(process: int, stat: Stat, parse: _Parse, pid: int, odd: _Odd) -> Owner | None:
    text = _read(process, "cgroup")
    owner = parse(text)
    if owner != Owner():
        return owner
    odd.look(pid, text)
    if not stat.exiting:
        return owner
    # On v1 an exiting task is in `/`, but is not the host's: freeing its device takes seconds.
    # If only the leader exits, the other threads have the cgroup.
    for thread in _threads(process):
        try:
            if not parse_stat(_read(process, f"task/{thread}/stat")).exiting:
                return parse(_read(process, f"task/{thread}/cgroup"))
        except _GONE:
            continue
    return None


@contextmanager
def _folder(root: Path, pid: int) -> Iterator[int]:
    folder = os.open(f"{root}/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield folder
    finally:
        os.close(folder)


def _threads(process: int) -> list[str]:
    tasks = os.open("task", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=process)
    try:
        return os.listdir(tasks)  # noqa: PTH208  (a Path has no descriptor)
    finally:
        os.close(tasks)


def _read(process: int, name: str) -> str:
    file = os.open(name, os.O_RDONLY | os.O_CLOEXEC, dir_fd=process)
    try:
        text = b""
        while chunk := os.read(file, _CHUNK):
            text += chunk
    finally:
        os.close(file)
    return text.decode("utf-8", "surrogateescape")  # names may be any bytes


def shown(folder: str) -> str:
    """Shorten a folder's name, which any user may have chosen, for a message."""
    whole = folder if len(folder) <= _SHOWN else f"{folder[:_SHOWN]}..."
    return "".join(letter if letter.isprintable() else "?" for letter in whole)


def _and_more(several: Sized) -> str:
    return f" (and {len(several) - 1} more)" if len(several) > 1 else ""
