"""Install Debian's packages that the tests need: `python -m cluster.install`.

It does not ask where no person can answer (CI=true, or inside a container); elsewhere it waits for a yes. It does
nothing when all is there. No service is started: the tests start their own programs.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from cluster.requirements import APPARMOR, BROWSER, GUEST, NEEDS, PROMETHEUS, READER, RELEASE, lacking

POLICY = Path("/usr/sbin/policy-rc.d")  # asked by Debian's packages whether they may start a service (invoke-rc.d(8))
CONTAINER_MARKS = (Path("/.dockerenv"), Path("/run/.containerenv"))


def packages() -> list[str]:
    """Debian's packages whose programs are missing here."""
    wanted = lacking(*NEEDS, *PROMETHEUS, *BROWSER, *APPARMOR, *READER, *RELEASE, *GUEST)
    return sorted({need.package for need in wanted})


def main() -> int:
    """Install; return the exit status. It is 0 after a no, too: the tests will be skipped, and say so."""
    wanted = packages()
    if not wanted:
        print("all packages that the tests need are installed")
        return 0
    if shutil.which("apt-get") is None:
        print(f"no apt-get here; the tests need what is in Debian's {', '.join(wanted)}", file=sys.stderr)
        return int(os.environ.get("CI") == "true")
    command = ["apt-get", "install", "--yes", "--no-install-recommends", *wanted]
    if os.geteuid() != 0:
        command = ["sudo", *command]
    print(" ".join(command))
    if not _may_proceed():
        print("not installed; the tests that need them will be skipped", file=sys.stderr)
        return 0
    return _install(command)


def _may_proceed() -> bool:
    if os.environ.get("CI") == "true" or any(mark.exists() for mark in CONTAINER_MARKS) or "container" in os.environ:
        return True
    if not sys.stdin.isatty():
        return False
    return input("install these packages on this machine? [y/N] ").strip().lower() in ("y", "yes")


def _install(command: list[str]) -> int:
    root = [] if os.geteuid() == 0 else ["sudo"]
    ours = not POLICY.exists()
    if ours:
        subprocess.run(
            [*root, "install", "-m", "755", "/dev/stdin", POLICY], input=b"#!/bin/sh\nexit 101\n", check=True
        )
    try:
        subprocess.run([*root, "apt-get", "update", "--quiet"], check=False)  # old lists may do
        return subprocess.run(command, check=False).returncode
    finally:
        if ours:
            subprocess.run([*root, "rm", "--force", POLICY], check=True)


if __name__ == "__main__":
    sys.exit(main())
