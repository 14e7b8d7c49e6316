"""
Whether the driver's PIDs are those of this `/proc`.

What comes in: the mount point of `/proc`. What goes out: None if that is proven, else a `Problem` with the fix.

The rule: proven, not assumed. The driver uses the PID namespace of its caller (before 535.113, the initial one), and
leaves out processes that are not visible there. A mounted `/proc` uses the namespace of the mount. Both surely agree if
each is the initial namespace. `NSpid:` proves nothing: it counts from the mount inwards.
"""

from pathlib import Path

from exporter.base.problem import Problem

INITIAL = "pid:[4026531836]"
"""The kernel's constant for the initial PID namespace, PROC_PID_INIT_INO of include/linux/proc_ns.h."""


def proc_root(host_root: Path) -> Path:
    """Choose the `/proc` to read: the host's, if it is mounted below `host_root`, else our own."""
    below = host_root / "proc"
    return below if _shows(below, "self") is None else Path("/proc")


def unproven(root: Path, own: Path, *, trusted: bool) -> Problem | None:
    """
    Return the missing proof that `root` and the driver use the same PIDs; None if nothing is missing.

    Args:
        root: the `/proc` that is read.
        own: our own `/proc`, which shows the namespace in which the driver sees us.
        trusted: an operator's claim that replaces the proof, for nested nodes. It does not replace a `/proc` that is
            missing or mounted with hidepid=2, where each process would look dead.

    """
    if why := _shows(root, "self"):
        return Problem(
            f"{root} shows no processes ({why})", fix="mount the host's /proc, and set node.host_root to the mount"
        )
    if why := _shows(root, "1"):
        return Problem(f"{root} hides the processes of others ({why})", fix="mount it without hidepid, or run as root")
    if trusted:
        return None
    for proc in dict.fromkeys((root, own)):
        namespace = proc / "self/ns/pid"
        try:
            target = str(namespace.readlink())
        except OSError as error:
            target = f"not readable ({error.strerror})"
        if target != INITIAL:
            return Problem(
                f"{namespace} is {target}, not {INITIAL}, so process numbers may be those of another PID namespace",
                fix="set hostPID: true; on a nested node that has it (kind, sysbox) set node.trust_pid_namespace",
            )
    return None


def _shows(proc: Path, pid: str) -> str | None:
    """Return the reason why a process is not shown, None if it is. Each namespace has a PID 1."""
    try:
        (proc / pid / "stat").stat()
    except OSError as error:
        return error.strerror
    return None
