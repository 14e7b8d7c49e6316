"""
The disk of a guest: Debian 13 with its own kernel, systemd, cgroup v2 alone, AppArmor and crun.

In: the list of packages below. Out: kernel, initrd and a disk image, kept between runs.

The rule: what is made is named by what it is made from, so a stale disk cannot be met. Nothing of a cluster is on it:
each bed brings its own programs and files on a second disk.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from cluster import build

SUITE = "trixie"
PACKAGES = (
    "systemd", "systemd-sysv", "dbus", "udev", "kmod", "linux-image-cloud-amd64", "qemu-guest-agent",
    "apparmor", "crun", "runc", "containernetworking-plugins", "iproute2", "iptables", "nftables", "conntrack",
    "python3", "ca-certificates", "procps", "util-linux", "libpam-systemd",
)  # fmt: skip
SIZE = "4G"
"""Of the disk: sparse, so that it costs what is on it."""
PROGRAMS = "/opt/bed"
ADDRESS, HOST = "10.0.2.15", "10.0.2.2"
"""Of the guest, and of the machine that it runs on, in QEMU's user network."""
FILES = {
    "etc/hostname": "gpu-vm\n",
    "etc/hosts": "127.0.0.1 localhost gpu-vm\n",
    "etc/fstab": f"/dev/vda / ext4 rw,noatime 0 1\n/dev/vdb {PROGRAMS} ext4 ro,nofail 0 0\n",
    "etc/systemd/network/10-bed.network": (
        f"[Match]\nName=en*\n[Network]\nAddress={ADDRESS}/24\nGateway={HOST}\nLinkLocalAddressing=no\nIPv6AcceptRA=no\n"
    ),
}
ENABLED = ("systemd-networkd", "qemu-guest-agent")
MASKED = (
    "apt-daily.timer", "apt-daily-upgrade.timer", "dpkg-db-backup.timer", "e2scrub_all.timer", "e2scrub_reap.service",
    "fstrim.timer", "systemd-timesyncd.service", "systemd-networkd-wait-online.service", "getty@tty1.service",
)  # fmt: skip
KEPT = ("kernel", "initrd", "disk.qcow2")


@dataclass(frozen=True, slots=True)
class Guest:
    """What QEMU boots."""

    kernel: Path
    initrd: Path
    disk: Path


def guest() -> Guest:
    """Return the guest, made now if that was not done before. Raises BuildError."""
    folder = build.cache() / "guests" / hashlib.sha256(Path(__file__).read_bytes()).hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs: one makes it, the other waits for it
        if not folder.exists():
            _make(folder)
    return Guest(*(folder / name for name in KEPT))


def image(source: Path, target: Path, size: str) -> None:
    """Make a disk image of a folder; no mount is needed. Raises BuildError."""
    _run("mke2fs", "-q", "-t", "ext4", "-O", "^has_journal", "-d", source, target, size)


def _make(folder: Path) -> None:
    print("making a guest of Debian 13 (once; about a minute) ...", file=sys.stderr, flush=True)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir=folder.parent, ignore_cleanup_errors=True) as unfinished:
        root, made = Path(unfinished, "root"), Path(unfinished, "made")
        made.mkdir()
        _run("mmdebstrap", "--variant=minbase", f"--include={','.join(PACKAGES)}", SUITE, root)
        _configure(root)
        for name, pattern in (("kernel", "vmlinuz-*"), ("initrd", "initrd.img-*")):
            (found,) = (root / "boot").glob(pattern)
            shutil.copyfile(found, made / name)
        raw = Path(unfinished, "disk.raw")
        image(root, raw, SIZE)
        _run("qemu-img", "convert", "-O", "qcow2", raw, made / "disk.qcow2")
        made.rename(folder)
    print(f"made the guest in {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def _configure(root: Path) -> None:
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    (root / PROGRAMS.strip("/")).mkdir(parents=True)
    for profile in (root / "etc/apparmor.d").iterdir():  # Debian's hundred take a minute of an emulated processor
        if profile.is_file():
            profile.unlink()
    _run("chroot", root, "systemctl", "--quiet", "enable", *ENABLED)
    _run("chroot", root, "systemctl", "--quiet", "mask", *MASKED)


def _run(*command: object) -> None:
    words = [str(word) for word in command]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise build.BuildError(f"{words[0]} is missing: `python -m cluster.install`") from error
    if done.returncode:
        raise build.BuildError(f"{words[0]} failed: {done.stderr[-2000:]}")


__all__ = ["ADDRESS", "HOST", "PROGRAMS", "Guest", "guest", "image"]
