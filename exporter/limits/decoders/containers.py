"""
The containers of a pod that the parts of a text belong to.

What comes in: the parts of a text, and a pod. What goes out: containers, or DeclarationError if the parts cannot be
mapped. No container gets an amount by guess.
"""

from collections.abc import Iterator, Sequence
from typing import TypeVar

from exporter.limits.decoding import DeclarationError, shown
from exporter.model import DeclaredContainer, DeclaredPod

_Part = TypeVar("_Part")
Containers = tuple[DeclaredContainer, ...]


def one_each(
    parts: Sequence[_Part], containers: Containers, called: str, whose: str = "containers"
) -> Iterator[tuple[_Part, str]]:
    """Pair each part with a container's name. Raises DeclarationError if the numbers differ."""
    if len(parts) != len(containers):
        raise DeclarationError(f"{len(parts)} {called} do not match {len(containers)} {whose}")
    return ((part, container.name) for part, container in zip(parts, containers, strict=True))


def all_or_regular(pod: DeclaredPod, parts: Sequence[object]) -> Containers:
    """Choose all containers if there are as many parts, else those that are not init containers."""
    return pod.containers if len(parts) == len(pod.containers) else pod.regular


def asking(pod: DeclaredPod, prefix: str) -> Containers:
    """List the containers that ask for resources with this prefix."""
    return tuple(
        container for container in pod.containers if any(key.startswith(prefix) for key in container.resources())
    )


def known(pod: DeclaredPod, name: str) -> str:
    """Return the name. Raises DeclarationError if the pod has no such container."""
    if pod.container(name) is None:
        raise DeclarationError(f"names the container {shown(name)!r}, which the pod does not have")
    return name
