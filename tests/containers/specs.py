"""What a pod is to be: the words in which a test asks for one.

In: nothing. Out: frozen values. Law: each default is what a kubelet would do with a manifest that does not say.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from containers import images


class Qos(StrEnum):
    GUARANTEED = "guaranteed"
    BURSTABLE = "burstable"
    BESTEFFORT = "besteffort"


class PidMode(StrEnum):
    """Whose pid namespace a container is in: its own, its pod's (shareProcessNamespace) or the host's (hostPID)."""

    CONTAINER = "CONTAINER"  # the values are the names of the CRI's NamespaceMode
    POD = "POD"
    NODE = "NODE"


@dataclass(frozen=True, slots=True)
class HostPath:
    """A folder or file of this machine, seen in the container at `at`."""

    path: Path
    at: str
    readonly: bool = False


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """One container of a pod. `command` and `args` replace the image's entry point and its arguments when given."""

    name: str
    image: str = images.BUSYBOX
    command: Sequence[str] = ()
    args: Sequence[str] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    mounts: Sequence[HostPath] = ()
    privileged: bool = False


@dataclass(frozen=True, slots=True)
class Executed:
    stdout: str
    stderr: str
    exit_code: int
