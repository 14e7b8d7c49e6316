"""
Declared limits: what a pod says that it may hold, in whichever of some fifty ways it says so.

What comes in: pods, nodes and claims as facts (`facts`), the catalogue (`loading` reads it), what was first seen. What
goes out: limits in bytes with scope, source and everything that was looked at (`answers`), explained (`explaining`).

The law: declared is not used, and never derived from it. All is pure but `loading` (the catalogue's files) and
`manifest` (objects as kubectl prints them).
"""

from exporter.limits.answers import Candidate, Limit, Resolution, Seen, Subject, bypassed, declared
from exporter.limits.decoding import Options
from exporter.limits.facts import (
    Claim,
    ClaimConfig,
    ClaimedDevice,
    ClaimUse,
    DeclaredContainer,
    DeclaredPod,
    Held,
    LeafDevice,
    NodeFacts,
    Place,
    leaf_devices,
)
from exporter.limits.resolver import resolve
from exporter.limits.rows import Trust
from exporter.model import EnforcedBy, Mechanism, Scope

__all__ = [
    "Candidate",
    "Claim",
    "ClaimConfig",
    "ClaimUse",
    "ClaimedDevice",
    "DeclaredContainer",
    "DeclaredPod",
    "EnforcedBy",
    "Held",
    "LeafDevice",
    "Limit",
    "Mechanism",
    "NodeFacts",
    "Options",
    "Place",
    "Resolution",
    "Scope",
    "Seen",
    "Subject",
    "Trust",
    "bypassed",
    "declared",
    "leaf_devices",
    "resolve",
]
