"""
The processes behind the driver's numbers, read from `/proc`.

What comes in: raw pids as the driver printed them. What goes out: a `HostSample`.

The law: each answer is about one process, and fresh. A number is read through its opened folder, which the kernel ties
to the process: once that is gone, the folder gives ENOENT or ESRCH, even if another process has the number by then. So
state, start time and cgroup cannot come from two lives. Gone is an answer; hidden is not, it is `unreadable`.
Nothing is remembered from round to round: a process costs some 25 microseconds, of which that would save four.
"""

import os
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from exporter.base.cgroup_owner import parse_owner
from exporter.host.pid_domain import proc_root, unproven
from exporter.host.stat import Stat, parse_stat, parse_tgid
from exporter.model import Fault, HostProcess, HostSample, Owner, ProcessKey

__all__ = ["ProcFs", "proc_root"]

_GONE = (FileNotFoundError, ProcessLookupError)
_CHUNK = 16384

_Parse = Callable[[str], Owner]
_Hidden = dict[int, Exception]


class ProcFs:
    """A `HostSource` over a mounted procfs. Needs no privilege: `stat`, `status` and `cgroup` are open to all."""

    def __init__(self, root: Path, *, trusted: bool = False, own: Path = Path("/proc")) -> None:
        """Read `root`. `trusted` replaces the proof of the PID domain, which compares `root` with `own`."""
        self._root = root
        self._trusted = trusted
        self._own = own

    def sample(self, pids: Collection[int], *, want_living: bool = False) -> HostSample:
        """
        Identify the process of each raw pid. `want_living` also reads the owners of all living processes of the node.

        Without proof of the PID domain nothing is read: each number would mean another process.
        """
        doubt = unproven(self._root, self._own, trusted=self._trusted)
        if doubt is not None:
            return HostSample(faults=(doubt,))
        parse = cache(parse_owner)  # for this sample: the processes of a container share one text
        processes: dict[int, HostProcess] = {}
        hidden: _Hidden = {}
        for pid in pids:
            try:
                processes[pid] = self._process(pid, parse, hidden)
            except _GONE:
                continue
            except (OSError, ValueError) as error:
                hidden[pid] = error
        unreadable = frozenset(hidden.keys() - processes.keys())
        living = self._living(parse, hidden) if want_living else None
        faults = (_fault(self._root, hidden, incomplete=bool(unreadable)),) if hidden else ()
        return HostSample(processes, unreadable, living, pid_domain_proven=True, faults=faults)

    def _process(self, raw: int, parse: _Parse, hidden: _Hidden) -> HostProcess:
        with _folder(self._root, raw) as task:
            pid = parse_tgid(_read(task, "status"))
            if pid == raw:
                return _look(task, pid, parse, hidden)
            with _folder(self._root, pid) as leader:
                host_process = _look(leader, pid, parse, hidden)
                os.stat(f"task/{raw}", dir_fd=leader)  # ENOENT unless this is still the process that the thread named
                return host_process

    def _living(self, parse: _Parse, hidden: _Hidden) -> frozenset[Owner]:
        living: set[Owner] = set()
        for pid in [int(entry.name) for entry in self._root.iterdir() if entry.name.isdecimal()]:
            try:
                with _folder(self._root, pid) as process:
                    owner = parse(_read(process, "cgroup"))
                    if owner.pairs and owner in living:
                        continue
                    host_process = _look(process, pid, parse, hidden)
            except _GONE:
                continue
            except (OSError, ValueError) as error:
                hidden[pid] = error
                continue
            if host_process.alive and host_process.owner is not None:
                living.add(host_process.owner)
        return frozenset(living)


def _look(process: int, pid: int, parse: _Parse, hidden: _Hidden) -> HostProcess:
    """Read a process by its opened folder. If its cgroup cannot be read, the rest is known, and why is in `hidden`."""
    stat = parse_stat(_read(process, "stat"))
    owner = None
    try:
        owner = _owner(process, stat, parse)
    except _GONE:
        raise
    except (OSError, ValueError) as error:
        # Folders deeper than PATH_MAX may give ENAMETOOLONG (6.18 cuts the path at its end, which does no harm).
        hidden[pid] = error
    return HostProcess(ProcessKey(pid, stat.start_ticks), stat.alive, owner)


def _owner(process: int, stat: Stat, parse: _Parse) -> Owner | None:
    owner = parse(_read(process, "cgroup"))
    if owner != Owner() or not stat.exiting:
        return owner
    # On v1 a task that exits is in `/`: freeing its device takes it seconds, and that does not make it the host's.
    # Where only the leader exits, the others know.
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
    return text.decode("utf-8", "surrogateescape")  # names are bytes, and any


def _fault(root: Path, hidden: _Hidden, *, incomplete: bool) -> Fault:
    pid, error = next(iter(hidden.items()))
    why = error.strerror if isinstance(error, OSError) else error
    message = f"cannot read {root}/{pid}: {why}" + (f" (and {len(hidden) - 1} more)" if len(hidden) > 1 else "")
    return Fault("host", "processes_unreadable", message, subject=str(root), incomplete=incomplete)
