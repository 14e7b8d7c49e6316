"""
Declared limits: the GPU memory that a pod may hold, declared in one of about fifty ways.

What comes in: pods, nodes and claims as facts (`exporter.model`), devices, the catalogue (`loading` reads it), and the
first-seen values. What goes out: limits in bytes with scope, source and every candidate (`answers`, `explaining`).

The steps, in order, one file each:
- `detection` finds the systems that matter,
- `row_texts` finds the text of a row,
- `decoders` read the text,
- `terms` gives each limit holder its amount,
- `candidates` turns amounts into bytes on a device,
- `first_seen` refuses raises, `factors` applies an installation's factor, `winner` picks the limit.

`resolver` runs them all. A new system is one file in `catalogue/`, and a decoder if rows of data cannot describe it.

The rule: limits come from declarations only, never from usage. Only `loading` reads files; the rest is pure.
"""

from exporter.limits.answers import Resolution, ResolvedLimit, Seen, Subject, bypassed, declared
from exporter.limits.decoding import Options
from exporter.limits.devices import LeafDevice, leaf_devices
from exporter.limits.resolver import resolve

__all__ = [
    "LeafDevice",
    "Options",
    "Resolution",
    "ResolvedLimit",
    "Seen",
    "Subject",
    "bypassed",
    "declared",
    "leaf_devices",
    "resolve",
]
