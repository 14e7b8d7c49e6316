"""
Whether the driver's process numbers are those of this `/proc`.

What comes in: where `/proc` is mounted. What goes out: None where it is proven, else a `Fault` that says what to do.

The law: proven, not assumed. The driver speaks in numbers of its caller's PID namespace (since 535.113; before, of the
initial one) and leaves out processes that are not visible there; a mounted `/proc` speaks in those of the mount. They
are the same for sure where both are the initial namespace. `NSpid:` proves nothing: it counts from the mount inwards.
"""

from pathlib import Path

from exporter.model import Fault

INITIAL = "pid:[4026531836]"
"""The kernel's constant for the initial PID namespace, PROC_PID_INIT_INO of include/linux/proc_ns.h."""


def proc_root(host_root: Path) -> Path:
    """Choose the `/proc` to read: the host's, where it is mounted below `host_root`, else our own."""
    below = host_root / "proc"
    return below if _shows(below, "self") is None else Path("/proc")


def unproven(root: Path, own: Path, *, trusted: bool) -> Fault | None:
    """
    Say what is missing from the proof that `root` and the driver number processes alike; None if nothing is.

    Args:
        root: the `/proc` that is read.
        own: our own `/proc`, which knows in what namespace the driver sees us.
        trusted: an operator's word in place of the proof, for nested nodes. It does not stand for a `/proc` that is
            missing or mounted with hidepid=2, where each process would look dead.

    """
    if why := _shows(root, "self"):
        return _fault(
            root, f"{root} shows no processes ({why}): mount the host's /proc, and set node.host_root to where"
        )
    if why := _shows(root, "1"):
        return _fault(root, f"{root} hides the processes of others ({why}): mount it without hidepid, or run as root")
    if trusted:
        return None
    for proc in dict.fromkeys((root, own)):
        namespace = proc / "self/ns/pid"
        try:
            target = str(namespace.readlink())
        except OSError as error:
            target = f"not readable ({error.strerror})"
        if target != INITIAL:
            return _fault(
                root,
                f"{namespace} is {target}, not {INITIAL}, so no number of a process can be believed: "
                "set hostPID: true; on a nested node that has it (kind, sysbox) set node.trust_pid_namespace",
            )
    return None


def _shows(proc: Path, pid: str) -> str | None:
    """Say why a process is not shown, None if it is. Each namespace has a number 1."""
    try:
        (proc / pid / "stat").stat()
    except OSError as error:
        return error.strerror
    return None


def _fault(root: Path, message: str) -> Fault:
    return Fault("host", "pid_domain_unproven", message, subject=str(root))
