"""
A command in a root of another Debian, with that Debian's Python and libc.

In: a suite of Debian, a command. Out: its exit status.

The rule: the checkout is seen at its own path, in an environment of that Python made of the lock (`VENV`, first on
PATH). The root is named by what it is made from, and kept. Mounts are seen by the command alone.

`python -m cluster.debian trixie pytest -q tests/policy` as root; `make test-python` runs the tests of `make check`.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

from cluster import build
from tools.release.images import OF_THE_MACHINE

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "python3", "python3-venv", "ca-certificates", "gcc", "libc6-dev", "make", "git", "procps", "util-linux",
    "libseccomp2",
)  # fmt: skip
VENV = "/opt/venv"
SEEN = ("/proc", "/sys", "/dev", "/run")
"""Of this machine, with what is mounted below them: the tests read cgroups, processes and sockets."""


def root(suite: str) -> Path:
    """Folder with this suite of Debian, made by mmdebstrap if it is not there. Raises BuildError."""
    key = hashlib.sha256(repr((suite, PACKAGES)).encode())
    folder = build.cache() / "debian" / f"{suite}-{key.hexdigest()[:16]}"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{suite}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs: one makes it, the other waits for it
        if not folder.exists():
            _make(suite, folder)
    return folder


def _make(suite: str, folder: Path) -> None:
    print(f"making a root of Debian's {suite} (once; about a minute) ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    unfinished = folder.with_suffix(".new")
    subprocess.run(["rm", "-rf", "--one-file-system", unfinished], check=True)
    command = ["mmdebstrap", "--quiet", "--variant=minbase", f"--include={','.join(PACKAGES)}", suite, str(unfinished)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise build.BuildError("mmdebstrap is missing (Debian's mmdebstrap)") from error
    if done.returncode:
        raise build.BuildError(f"mmdebstrap failed: {done.stderr[-2000:]}")
    unfinished.rename(folder)
    print(f"made it in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def script(folder: Path, command: list[str]) -> str:
    """Return what a shell does in a mount namespace of its own: the root takes the place of this machine's."""
    place, lines = shlex.quote(str(folder)), ["set -e", "mount --rbind {0} {0}"]
    for path in map(str, (*SEEN, ROOT, *filter(Path.is_file, OF_THE_MACHINE))):
        there = shlex.quote(f"{folder}{path}")
        lines.append(f"mkdir -p {there}" if Path(path).is_dir() else f"mkdir -p $(dirname {there}); touch {there}")
        lines.append(f"mount --rbind {shlex.quote(path)} {there}")
    # Not chroot: a process that is chrooted may make no user namespace, nor change how mounts spread.
    lines += ["cd {0}", "pivot_root . mnt", "umount --lazy /mnt", f"cd {shlex.quote(str(ROOT))}"]
    lines += [f"make --silent VENV={VENV} PYTHON=/usr/bin/python3 {VENV}/.dev", f"exec {shlex.join(command)}"]
    return "\n".join(line.replace("{0}", place) for line in lines)


def main(suite: str, command: list[str]) -> int:
    """Run it; return its exit status."""
    if os.geteuid() != 0:
        raise build.BuildError("root is needed for a root of another Debian")
    environment = {
        "PATH": f"{VENV}/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "LANG": "C.UTF-8",
        "PYTHONPATH": "tests",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
    words = ["unshare", "--mount", "sh", "-c", script(root(suite), command)]
    return subprocess.run(words, env=environment, check=False).returncode


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1], sys.argv[2:]))
    except build.BuildError as error:
        sys.exit(str(error))
