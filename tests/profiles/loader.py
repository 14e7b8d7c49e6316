"""
Runs a command under a seccomp profile, as a container runtime does: `loader.py PROFILE COMMAND ...`.

In: a profile in the form of the OCI runtime specification, which the kubelet and the runtimes take. Out: the command,
in this process. Law: like runc it skips calls that this machine's architecture lacks and allows no new privileges.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
from pathlib import Path
from typing import Any

LIBRARY = "libseccomp.so.2"
COMPARISONS = {"SCMP_CMP_EQ": 4, "SCMP_CMP_MASKED_EQ": 7}
UNKNOWN = -1  # __NR_SCMP_ERROR: no architecture has a call of this name


class Comparison(ctypes.Structure):
    """`struct scmp_arg_cmp` of seccomp.h."""

    _fields_ = (
        ("arg", ctypes.c_uint),
        ("op", ctypes.c_int),
        ("datum_a", ctypes.c_uint64),
        ("datum_b", ctypes.c_uint64),
    )


def library() -> ctypes.CDLL:
    """Load libseccomp. Raises OSError where there is none."""
    found = ctypes.CDLL(LIBRARY)
    found.seccomp_init.restype = ctypes.c_void_p
    return found


def action(name: str, error: int) -> int:
    """Translate an action: SCMP_ACT_ALLOW or SCMP_ACT_ERRNO."""
    return {"SCMP_ACT_ALLOW": 0x7FFF0000, "SCMP_ACT_ERRNO": 0x00050000 | error}[name]


def load(profile: dict[str, Any]) -> None:
    """Put this process, and what it executes, under the profile."""
    seccomp = library()
    context = ctypes.c_void_p(seccomp.seccomp_init(action(profile["defaultAction"], profile["defaultErrnoRet"])))
    for rule in profile["syscalls"]:
        compared = [
            Comparison(one["index"], COMPARISONS[one["op"]], one["value"], one.get("valueTwo", 0))
            for one in rule.get("args", ())
        ]
        taken = ctypes.c_uint32(action(rule["action"], rule.get("errnoRet", 1)))
        for name in rule["names"]:
            number = seccomp.seccomp_syscall_resolve_name(name.encode())
            if number == UNKNOWN:  # a libseccomp older than the call
                continue
            array = (Comparison * len(compared))(*compared)
            if failed := seccomp.seccomp_rule_add_array(context, taken, number, len(compared), array):
                raise OSError(-failed, os.strerror(-failed), name)
    if failed := seccomp.seccomp_load(context):  # it sets no_new_privs itself
        raise OSError(-failed, os.strerror(-failed))


if __name__ == "__main__":
    load(json.loads(Path(sys.argv[1]).read_text()))
    os.execvp(sys.argv[2], sys.argv[2:])  # noqa: S606
