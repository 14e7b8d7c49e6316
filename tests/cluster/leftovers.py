"""What a bed that was killed leaves on the machine, and how it goes: processes, containers, an interface, folders.

In: the records that beds write before they make anything. Out: a clean machine, and in words what was removed.
Law: a bed is stale when the process that made it is gone (its token has pid and start time). A process is a bed's when
the bed's token is in its environment. Nothing is known by its name, and beds of living processes are not touched.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from cluster import build
from cluster.processes import MARK
from containers import cgroupfs
from containers import leftovers as containers
from patience import PATIENCE


@dataclass(frozen=True, slots=True)
class Record:
    """What a bed will make, written down first.

    `folder` and `interface` are all its own. `made` are folders of the machine (such as /var/lib/kubelet) that were
    missing and serve as mount points. The last bed that needs one removes it.
    """

    token: str
    folder: str
    interface: str | None = None
    made: tuple[str, ...] = ()
    by_hand: bool = False  # by a person, with `python -m cluster`

    @property
    def file(self) -> Path:
        return _records() / f"{self.token}.json"


def write(record: Record) -> None:
    _records().mkdir(parents=True, exist_ok=True)
    draft = record.file.with_suffix(".new")
    draft.write_text(json.dumps(asdict(record)))
    draft.rename(record.file)


def remove(record: Record) -> list[str]:
    """Remove all of one bed but its containers. Returns what there was, in words. Raises TimeoutError."""
    removed = _kill(record.token)
    if record.interface and Path("/sys/class/net", record.interface).exists():
        subprocess.run(["ip", "link", "delete", record.interface], check=True, capture_output=True)
        removed.append(f"interface {record.interface}")
    if Path(record.folder).exists():
        shutil.rmtree(record.folder)
        removed.append(f"folder {record.folder}")
    # Not while another bed lives on it: to remove a folder unmounts what other mount namespaces have there (rmdir(2)).
    for folder in sorted(set(record.made) - made_for_living(besides=record.token), reverse=True):
        with contextlib.suppress(OSError):  # in use by another process by now, or gone
            Path(folder).rmdir()
            removed.append(f"folder {folder}")
    record.file.unlink(missing_ok=True)
    return removed


def made_for_living(*, besides: str | None = None) -> set[str]:
    """Folders of the machine that beds of living processes have made and use."""
    living = (record for record in records() if record.token != besides and cgroupfs.owner_lives(record.token))
    return {folder for record in living for folder in record.made}


def remove_stale() -> list[str]:
    """Remove every bed whose owner is gone. Returns in words what was removed; empty on a clean machine."""
    _records().mkdir(parents=True, exist_ok=True)
    with (_records() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two runs that begin at once: one removes, the other finds nothing
        stale = [record for record in records() if not cgroupfs.owner_lives(record.token)]
        # All processes first: no kubelet may start anew what is removed next.
        removed = [line for record in stale for line in _kill(record.token)]
        if os.geteuid() == 0:
            removed += containers.remove_stale()
        return removed + [line for record in stale for line in remove(record)]


def records() -> Iterator[Record]:
    """The beds that were started and not removed yet, of living owners too."""
    for file in sorted(_records().glob("*.json")):
        try:
            fields = json.loads(file.read_text())
            yield Record(**{**fields, "made": tuple(fields["made"])})
        except (OSError, ValueError, KeyError, TypeError):
            file.unlink(missing_ok=True)  # of another version of this file; files are written whole


def marked(token: str) -> set[int]:
    """Living processes with the bed's token in their environment."""
    line = f"{MARK}={token}".encode()
    found = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):  # gone, or not ours to read
                if line in (entry / "environ").read_bytes().split(b"\0"):
                    found.add(int(entry.name))
    return found


def _kill(token: str) -> list[str]:
    killed: dict[int, str] = {}
    deadline = time.monotonic() + PATIENCE
    while pids := marked(token):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes of bed {token} do not end: {sorted(pids)}")
        for pid in pids:
            with contextlib.suppress(OSError):
                handle = os.pidfd_open(pid)  # held fast, then looked at again: the number may have a new owner
                try:
                    if pid in marked(token):
                        killed.setdefault(pid, Path(f"/proc/{pid}/comm").read_text().strip())
                        signal.pidfd_send_signal(handle, signal.SIGKILL)
                finally:
                    os.close(handle)
        time.sleep(0.02)
    return [f"process {pid} ({name})" for pid, name in sorted(killed.items())]


def _records() -> Path:
    return build.cache() / "beds"
