"""
Names of GPUs and of containers, for the table and its header.

What comes in: a GPU, or an entry of the document with a container. What goes out: short text, safe for a terminal.

The rule: two GPUs of one node never have the same name.
"""

from collections.abc import Collection, Iterable

from exporter.api.schema import Allocation, Gpu, Owned
from exporter.top.figures import UNKNOWN, clean


def holder(owner: Owned | Allocation) -> str:
    """Name the container, or the pod if the entry has no container; a pod without a name is named by its UID."""
    pod = f"{owner.namespace}/{owner.pod}" if owner.pod is not None else f"unknown pod {owner.pod_uid or UNKNOWN}"
    return clean(f"{pod}/{owner.container}" if owner.container else pod)


def twins(gpus: Iterable[Gpu]) -> frozenset[int]:
    """Return the indices that several GPUs have: each vendor's driver counts from 0."""
    owners: dict[int, set[str]] = {}
    for gpu in gpus:
        if gpu.index is not None:
            owners.setdefault(gpu.index, set()).add(gpu.uuid)
    return frozenset(index for index, uuids in owners.items() if len(uuids) > 1)


def called(gpu: Gpu, doubled: Collection[int]) -> str:
    """Name a GPU by its index; if several have that index (`twins`), the vendor is added."""
    if gpu.index is None:
        return f"GPU {UNKNOWN}"
    more = f" {clean(gpu.vendor) if gpu.vendor else short(gpu.uuid)}" if gpu.index in doubled else ""
    return f"GPU {gpu.index}{more}"


def short(uuid: str) -> str:
    """Name a GPU by the first group of its UUID, as people do; another id (such as a PCI address) stays whole."""
    groups = uuid.split("-")
    first = next((group for group in groups if len(group) == 8 and group.isalnum()), "")  # noqa: PLR2004
    return clean(first if len(groups) > 2 and first else uuid)  # noqa: PLR2004
