"""
A guest that has booted and is ready to join a cluster, kept between runs: to go on takes seconds, to boot minutes.

In: the folder of programs. Out: the disks and the memory of a guest that was suspended when containerd had the images.

The rule: what is made is named by what it is made from, and nothing of a cluster is in it. So certificates, leases and
connections cannot be stale, and one guest serves all tests of a run.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from cluster import build
from hosts import guest, machine
from hosts.agent import Agent
from hosts.machine import PROGRAM, Drives, Machine

SIZE = "1G"
"""Of the disk of programs: sparse."""
KEPT_FOR_S = 24 * 3600.0
"""How long the guest of another checkout is kept after its last use: another run may be about to start it."""
DISK, PROGRAMS, MEMORY = "disk.qcow2", "programs.raw", "memory"


def suspended(programs: Path, prepare: Callable[[Agent], None], token: str) -> Drives:
    """
    Return such a guest, made now if that was not done before. Raises BuildError and GuestError.

    programs: becomes its second disk.
    prepare:  what is done in it before it is suspended; the file that defines it is part of what names the guest.
    token:    the bed's mark, for the machine that makes it.
    """
    made = guest.guest()
    done = (Path(file).read_text() for file in (machine.__file__, prepare.__code__.co_filename))
    parts = (made.disk.parent.name, _digest(programs), _version(), *done)
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]
    folder = build.cache() / "guests" / f"suspended-{key}"
    with (folder.parent / "suspended.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs: one makes it, the other waits for it
        if not folder.exists():
            _make(folder, programs, made, prepare, token)
        (folder / DISK).touch()
        for old in folder.parent.glob("suspended-*"):
            if time.time() - (old / DISK).stat().st_mtime > KEPT_FOR_S:
                shutil.rmtree(old)
    return Drives(made.kernel, made.initrd, folder / DISK, folder / PROGRAMS, folder / MEMORY)


def _make(folder: Path, programs: Path, made: guest.Guest, prepare: Callable[[Agent], None], token: str) -> None:
    print("booting a guest (once for each image of the daemon; two minutes) ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as unfinished:
        draft = Path(unfinished, "draft")
        draft.mkdir()
        guest.image(programs, draft / PROGRAMS, SIZE)
        drives = Drives(made.kernel, made.initrd, made.disk, draft / PROGRAMS)
        booted = Machine(Path(unfinished, "machine"), drives, token)
        try:
            booted.start()
            print(f"it answers after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            prepare(booted.agent)
            print(f"it is ready after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)
            booted.suspend(draft / MEMORY)
        finally:
            booted.stop()
        booted.disk.rename(draft / DISK)
        draft.rename(folder)
    print(f"suspended the guest after {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _digest(folder: Path) -> str:
    key = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        content = hashlib.sha256(file.read_bytes()).hexdigest() if file.is_file() else ""
        key.update(f"{file.relative_to(folder)}\0{file.stat().st_mode}\0{content}\n".encode())
    return key.hexdigest()


def _version() -> str:
    return subprocess.run([PROGRAM, "--version"], capture_output=True, text=True, check=True).stdout


__all__ = ["suspended"]
