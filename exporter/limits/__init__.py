"""
Declared limits: what a pod says that it may hold, in whichever of some fifty ways it says so.

What comes in: pods, nodes and claims as facts (`exporter.model`), devices, the catalogue (`loading` reads it), what was
first seen. What goes out: limits in bytes with scope, source and every candidate (`answers`), explained (`explaining`).

The order of work, one file a step: `detection` (which systems matter), `row_texts` (where a row's text is), `decoders`
(what the text says), `terms` (the amount of each limit holder), `candidates` (bytes on a device), `first_seen`,
`factors`, `winner`; `resolver` runs them all. A new system is one file in `catalogue/`, and a decoder where data alone
cannot say it.

The law: declared is not used, and never derived from it. All is pure but `loading` (the catalogue's files).
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
