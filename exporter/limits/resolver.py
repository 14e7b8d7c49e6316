"""
The limits of a pod, from all its declarations.

What comes in: a pod, its node, the devices, the catalogue, the pod's first-seen values, its claims. What goes out: one
limit per limit holder, scope, vendor and device, with every candidate that was considered.

The rule: every input gives an answer, and no pod changes the answer of another. The resolver reads no clock, file or
network. No order matters but that of a pod's containers.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.limits.answers import Candidate, Resolution, ResolvedLimit, Seen, Subject
from exporter.limits.candidates import candidates
from exporter.limits.decoding import NOTHING_CHOSEN, Options, Scene
from exporter.limits.detection import detect
from exporter.limits.devices import LeafDevice, Place, device_name
from exporter.limits.first_seen import Key, hold, known
from exporter.limits.rows import Catalogue
from exporter.limits.winner import decide
from exporter.model import Claim, DeclaredPod, Mechanism, NodeFacts, Scope

_Group = tuple[Subject, Scope, str]
"""A limit holder, a scope and a vendor: what a pod says of another vendor's devices takes no limit away. "": any."""


def resolve(
    pod: DeclaredPod,
    node: NodeFacts | None,
    devices: Sequence[LeafDevice],
    catalogue: Catalogue,
    first_seen: Iterable[Seen] = (),
    *,
    claims: Iterable[Claim] = (),
    options: Options = NOTHING_CHOSEN,
) -> Resolution:
    """
    Resolve the limits of one pod.

    Args:
        pod: as declared.
        node: None offline, if it was not given.
        devices: the node's devices; empty if unknown.
        catalogue: the systems and their rows, from `exporter.limits.loading`.
        first_seen: `Resolution.first_seen` of the last call, as long as the pod lives.
        claims: all known claims; those of other pods are ignored.
        options: the operator's choices.

    """
    devices, claims = tuple(devices), tuple(claims)
    gathered: list[Candidate] = []
    for detected in detect(catalogue, node=node, pod=pod, devices=devices, claims=claims, options=options):
        system = detected.system
        mine = tuple(device for device in devices if device.vendor == system.vendor)
        gathered += _outranked(candidates(Scene(system, pod, node, mine, claims, options, not detected.forgeable)))
    vendors = _Vendors({system.name: (system.vendor, system.detect.always) for system in catalogue})
    before: dict[str, dict[Key, Seen]] = defaultdict(dict)
    for value in first_seen:
        before[vendors.of_seen(value)].update(known([value]))
    contexts = {system.name: system.context for system in catalogue}
    limits: list[ResolvedLimit] = []
    elsewhere: list[ResolvedLimit] = []
    kept = {vendor: dict(first) for vendor, first in before.items()}
    holders = {vendor: _by_subject(first) for vendor, first in before.items()}
    for (subject, scope, vendor), group in sorted(
        _grouped(gathered, before, vendors, {each.vendor for each in devices}).items()
    ):
        first = {**holders.get("", {}).get(subject, {}), **holders.get(vendor, {}).get(subject, {})}
        held, new = hold(subject, scope, group, first, devices)
        held = [c if c.row is not None else replace(c, context=contexts.get(c.system, c.context)) for c in held]
        # By itself: where another system reads the same annotation, its name may come first.
        ours = [candidate for candidate in group if not vendors.of(candidate)]
        _, new_ours = hold(subject, scope, ours, holders.get("", {}).get(subject, {}), devices)
        for value in (*new, *new_ours):
            kept.setdefault(vendors.of_seen(value), {}).update(known([value]))
        alone = all(not vendors.of(candidate) for candidate in held)
        here, there = _limits(subject, held, _only(devices, "" if alone else vendor))
        limits += [replace(limit, vendor=vendor) for limit in here]
        elsewhere += [replace(limit, vendor=vendor) for limit in there]
    values = sorted([value for first in kept.values() for value in first.values()], key=_order)
    return Resolution(pod.uid, pod.namespace, pod.name, tuple(limits), tuple(elsewhere), tuple(values))


class _Vendors:
    """On devices of which vendor a declaration counts; "": of any, as gpusteward's own annotation does."""

    def __init__(self, systems: Mapping[str, tuple[str, bool]]) -> None:
        self._systems = systems

    def of(self, candidate: Candidate) -> str:
        vendor, always = self._systems.get(candidate.system, ("", False))
        written = candidate.row is None or candidate.row.mechanism is Mechanism.ANNOTATION
        return "" if always and written else vendor

    def of_seen(self, seen: Seen) -> str:
        vendor, always = self._systems.get(seen.system, ("", False))
        return "" if always else vendor  # what can change while a pod lives is written on it


def _by_subject(first: Mapping[Key, Seen]) -> dict[Subject, dict[Key, Seen]]:
    found: dict[Subject, dict[Key, Seen]] = defaultdict(dict)
    for key, seen in first.items():
        found[key[0]][key] = seen
    return found


def _outranked(gathered: Sequence[Candidate]) -> list[Candidate]:
    """Exclude declarations that their own system ignores: HAMi ignores its percentage beside MiB, Volcano the MiB."""
    sought = {key for candidate in gathered if candidate.row is not None for key in candidate.row.loses_to}
    rivals: dict[Subject, list[Candidate]] = defaultdict(list)
    for candidate in gathered:
        if candidate.row is not None and candidate.row.key in sought:
            rivals[candidate.subject].append(candidate)
    return [_yielding(candidate, rivals.get(candidate.subject, ())) for candidate in gathered]


def _yielding(candidate: Candidate, rivals: Iterable[Candidate]) -> Candidate:
    if candidate.row is None or not candidate.row.loses_to or not candidate.valid:
        return candidate
    winner = next((rival for rival in rivals if _beats(rival, candidate)), None)
    return candidate if winner is None else replace(candidate, excluded=f"{winner.key} takes precedence")


def _beats(other: Candidate, candidate: Candidate) -> bool:
    return (
        other.row is not None
        and candidate.row is not None
        and other.row.key in candidate.row.loses_to
        and (other.place == candidate.place or None in {other.place, candidate.place})
        and (other.valid or (other.ratio is not None and not other.invalid))
    )


def _grouped(
    gathered: Iterable[Candidate],
    before: Mapping[str, Mapping[Key, Seen]],
    vendors: _Vendors,
    here: Collection[str],
) -> dict[_Group, list[Candidate]]:
    """
    Group candidates by limit holder, scope and vendor.

    One without a container goes to all containers of its system. One that counts for any vendor goes to the groups of
    all vendors of which the holder says something, or the node has devices (`here`).
    """
    groups: dict[_Group, list[Candidate]] = defaultdict(list)
    loose, ours = [], []
    for candidate in gathered:
        scope = Scope.CONTAINER if candidate.scope is Scope.INSTANCE else candidate.scope
        if candidate.subject == Subject() and scope in {Scope.CONTAINER, Scope.PROCESS}:
            loose.append(candidate)
        elif vendor := vendors.of(candidate):
            groups[candidate.subject, scope, vendor].append(candidate)
        else:
            ours.append(((candidate.subject, scope), candidate))
    of: dict[tuple[Subject, Scope], list[str]] = defaultdict(list)
    for vendor, first in before.items():
        for remembered in first.values() if vendor else ():
            groups.setdefault((remembered.subject, remembered.scope, vendor), [])
    for group in groups:
        of[group[:2]].append(group[2])
    for seen in before.get("", {}).values():
        for vendor in {*of.get((seen.subject, seen.scope), ()), *here} or {""}:
            groups.setdefault((seen.subject, seen.scope, vendor), [])
    for holder, candidate in ours:
        for vendor in {*of.get(holder, ()), *here} or {""}:
            groups[(*holder, vendor)].append(candidate)
    placed = {group: {member.system for member in members} for group, members in groups.items()}
    for candidate in loose:
        homes = [group for group, systems in placed.items() if candidate.system in systems and group[0].container]
        for home in homes or [(Subject(), candidate.scope, vendors.of(candidate))]:
            groups[home].append(candidate)
    return groups


def _only(devices: Sequence[LeafDevice], vendor: str) -> Place | None:
    """Return the device if there is only one: then each device of a limit holder is that one."""
    mine = [device.key for device in devices if vendor in ("", device.vendor)]
    return Place(device_name(mine[0]), mine[0]) if len(mine) == 1 and mine[0] is not None else None


def _limits(
    subject: Subject, group: Sequence[Candidate], only: Place | None
) -> tuple[list[ResolvedLimit], list[ResolvedLimit]]:
    """Decide for each named device. A candidate without a device counts on all devices, named or not."""
    if not group:
        return [], []
    places = {candidate.place.name: candidate.place for candidate in group if candidate.place is not None}
    anywhere = [candidate for candidate in group if candidate.place is None]
    if not places:
        return [decide(subject, only, anywhere)], []
    here = [decide(subject, place, _on(place, group)) for _, place in sorted(places.items())]
    rest = [candidate for candidate in anywhere if candidate.valid]
    return here, [decide(subject, None, rest)] if rest else []


def _on(place: Place, group: Sequence[Candidate]) -> list[Candidate]:
    """List the candidates for a device: those that name it, and those without a device, each declaration once."""
    named = [candidate for candidate in group if candidate.place == place]
    put = {(candidate.system, candidate.row, candidate.key, candidate.text) for candidate in named}
    return named + [c for c in group if c.place is None and (c.system, c.row, c.key, c.text) not in put]


def _order(seen: Seen) -> tuple[Subject, str, str, int, str]:
    return seen.subject, seen.scope, seen.place or "", seen.trust, seen.system
