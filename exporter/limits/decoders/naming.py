"""
Annotations that only name devices: by index, by UUID, by Intel's card names.

What comes in: "0", "0,1", "GPU-...,GPU-...", "card0,card1|card2". What goes out: amounts without a value, each with its
device. Another text declares the value.

Sources: AliyunContainerService/gpushare-scheduler-extender pkg/utils/const.go, elastic-ai/elastic-gpu-scheduler
pkg/utils/types.go, tkestack/gpu-manager pkg/types, intel/platform-aware-scheduling gpu-aware-scheduling,
alibaba/open-simulator pkg/type/open-gpu-share/utils (DevIdSep).
"""

from collections.abc import Iterable

from exporter.limits.decoders.containers import asking, one_each
from exporter.limits.decoding import Amount, Asked, DeclarationError, Where, bounded, shown, whole


def indices(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read indices, separated by commas; -1 and "" mean none (gpushare writes -1 until it has assigned a device)."""
    return [Amount(None, where=Where(index=whole(index, "index"))) for index in _items(text) if index != "-1"]


def dashed_indices(text: str, asked: Asked) -> Iterable[Amount]:
    """Read indices as open-simulator joins them: "2-3-0-1"."""
    return indices(text.replace("-", ","), asked)


def uuids(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read UUIDs, separated by commas."""
    return [Amount(None, where=Where(uuid=uuid)) for uuid in _items(text)]


def cards(text: str, asked: Asked) -> Iterable[Amount]:
    """Read Intel's card names: commas between cards, `|` between the containers that ask for GPUs."""
    containers = asking(asked.scene.pod, "gpu.intel.com/")
    for part, container in one_each(text.split("|"), containers, "segments", "containers that ask for GPUs"):
        for card in _items(part):
            if not card.startswith("card"):
                raise DeclarationError(f"{shown(card)!r} is not a card")
            where = Where(index=whole(card.removeprefix("card"), "card"))
            yield Amount(None, container=container, where=where)


def _items(text: str) -> list[str]:
    items = [item.strip() for item in text.split(",") if item.strip()]
    bounded(len(items))
    return items
