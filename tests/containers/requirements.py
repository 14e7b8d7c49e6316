"""What this machine lacks for real containers, in words that say how to fix it.

In: the machine. Out: a list of sentences; empty means that a bed can start.
"""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

from containers.cgroupfs import Ledger, below, hierarchies, tokens
from containers.containerd import SYSTEM_PATH
from containers.images import BUSYBOX_BINARY

PT_INTERP = 3

# binary → Debian package
BINARIES = {
    "containerd": "containerd",
    "containerd-shim-runc-v2": "containerd",
    "ctr": "containerd",
    "runc": "runc",
    "mount": "mount",
    "unshare": "util-linux",
}


def requirements(*, kubepods: str = "/kubepods") -> list[str]:
    """What is missing. `kubepods` is the cgroup in which the bed's pods will be."""
    missing = [] if os.geteuid() == 0 else ["root: containers need it, and so do cgroups"]
    search = os.environ.get("PATH", "") + SYSTEM_PATH
    missing += [
        f"{binary}: apt-get install {package}"
        for binary, package in BINARIES.items()
        if shutil.which(binary, path=search) is None
    ]
    if not _static(BUSYBOX_BINARY):
        missing.append(f"a static {BUSYBOX_BINARY}: apt-get install busybox-static")
    if not hierarchies().kubelet:
        missing.append("a cgroup file system: mount one below /sys/fs/cgroup")
    elif not missing and (found := foreign_pods(kubepods)):
        others = f", and so are {len(found) - 1} more" if len(found) > 1 else ""
        missing.append(f"sole use of {kubepods}: {found[0]} is another kubelet's{others}")
    return missing


def foreign_pods(kubepods: str) -> list[str]:
    """Pods below `kubepods` that no bed made: a kubelet works there, and would end ours as orphans."""
    owned = {path for token in tokens() for path in Ledger(token).paths("own")}
    found = [kubepods] if kubepods in owned else []
    for tier in ("", "/burstable", "/besteffort"):
        folder = below(hierarchies().kubelet[0], kubepods + tier)
        if folder.exists():
            pods = sorted(entry.name for entry in folder.iterdir() if entry.is_dir() and entry.name.startswith("pod"))
            found += [path for name in pods if (path := f"{kubepods}{tier}/{name}") not in owned]
    return found


def _static(binary: Path) -> bool:
    """Whether this is a 64-bit ELF file that names no dynamic loader (no program header PT_INTERP, elf(5))."""
    content = binary.read_bytes() if binary.exists() else b""
    if not content.startswith(b"\x7fELF\x02\x01"):
        return False
    (start,), (size, count) = struct.unpack_from("<Q", content, 32), struct.unpack_from("<HH", content, 54)
    kinds = (struct.unpack_from("<I", content, start + index * size)[0] for index in range(count))
    return PT_INTERP not in kinds
