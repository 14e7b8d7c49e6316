"""
The one filter for environments: it keeps a container's variables about devices, and no others.

What comes in: the variables of a container's spec. What goes out: those that limits can be read from.

The rule: this process holds no secret of a pod. A variable is kept if its name is about devices and not about
credentials, and its value is literal and not too long.
"""

from collections.abc import Iterable

from exporter.objects.metadata import Part, Quantity

ABOUT_DEVICES = ("CUDA", "NVIDIA", "GPU", "NPU", "ASCEND")
"""Parts of the names of variables that device plugins and sharing systems read."""
ABOUT_CREDENTIALS = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
"""Parts of names that exclude a variable after all, such as NVIDIA_API_KEY."""
LONGEST = 32 << 10
"""Characters: 512 UUIDs of devices have 21 KiB. A longer value is not kept, because one pod has room for a megabyte."""


class EnvVar(Part, frozen=True):
    """A variable; `value` is None for a reference, such as to a Secret."""

    name: str
    value: Quantity | None = None


def about_devices(variables: Iterable[EnvVar]) -> list[EnvVar]:
    """Keep only the variables that a limit may be read from."""
    return [
        variable
        for variable in variables
        if variable.value is not None and len(str(variable.value)) <= LONGEST and _readable(variable.name.upper())
    ]


def _readable(name: str) -> bool:
    return any(part in name for part in ABOUT_DEVICES) and not any(part in name for part in ABOUT_CREDENTIALS)
