"""
The decoders by name, for formats that a row of data cannot describe. One small file per family of formats.

What comes in: the name that a row gives, the text, its place. What goes out: amounts, or DeclarationError with the
reason.
"""

from exporter.limits.decoders import (
    claims,
    granting,
    hami,
    kai,
    listed,
    naming,
    plain,
    vgpu_manager,
)
from exporter.limits.decoding import LONGEST, Amount, Asked, DeclarationError, Decoder

DECODERS: dict[str, Decoder] = {
    "quantity": plain.plain_or_quantity,
    "below-whole": plain.below_whole,
    "per-container": plain.per_container,
    "kai-memory": kai.memory,
    "kai-fraction": kai.fraction,
    "fraction": plain.fraction_of_device,
    "cards-of-percent": plain.cards_of_percent,
    "metax-memory": plain.metax_memory,
    "enflame-memory": plain.enflame_memory,
    "kunlun-memory": plain.kunlun_memory,
    "mps-limits": plain.mps_limits,
    "granted": granting.granted,
    "whole-device": granting.whole_device,
    "instance": granting.instance,
    "mps-share": granting.mps_share,
    "gke-share": granting.gke_share,
    "fair-share": granting.fair_share,
    "visible": granting.visible,
    "slices": granting.slices,
    "hami": hami.allocated,
    "volcano": hami.requesting,
    "vgpu-manager": vgpu_manager.allocated,
    "koordinator": listed.koordinator,
    "ack": listed.ack,
    "metax": listed.metax,
    "ascend": listed.ascend,
    "cambricon": listed.cambricon,
    "claimed-device": claims.device,
    "pinned": claims.pinned,
    "pinned-per-device": claims.pinned_per_device,
    "threads": claims.threads,
    "indices": naming.indices,
    "dashed-indices": naming.dashed_indices,
    "uuids": naming.uuids,
    "cards": naming.cards,
}


def decode(text: str, asked: Asked) -> tuple[Amount, ...]:
    """Decode with the row's decoder. Raises DeclarationError."""
    if len(text) > LONGEST:
        raise DeclarationError(f"{len(text)} characters long; no declaration has more than {LONGEST}")
    return tuple(DECODERS[asked.row.decoder](text, asked))
