"""
The one filter of environments: a container's variables about devices stay, and no others.

What comes in: the variables of a container's spec. What goes out: those that limits can be read from.

The law: no secret of a pod lies in this process. A variable stays if its name is about devices, is not about
credentials, and its value is literal.
"""

from collections.abc import Iterable

from exporter.objects.metadata import Part, Quantity

ABOUT_DEVICES = ("CUDA", "NVIDIA", "GPU", "NPU", "ASCEND")
"""Parts of the names of variables that device plugins and sharing systems read."""
ABOUT_CREDENTIALS = ("KEY", "TOKEN", "SECRET", "PASS", "CREDENTIAL")
"""Parts of names that exclude a variable again: NVIDIA_API_KEY."""


class EnvVar(Part, frozen=True):
    """A variable with a literal value; references to secrets and the like have none."""

    name: str
    value: Quantity | None = None


def about_devices(variables: Iterable[EnvVar]) -> list[EnvVar]:
    """Leave out all variables that no limit is read from."""
    return [variable for variable in variables if variable.value is not None and _readable(variable.name.upper())]


def _readable(name: str) -> bool:
    return any(part in name for part in ABOUT_DEVICES) and not any(part in name for part in ABOUT_CREDENTIALS)
