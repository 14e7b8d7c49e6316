"""
First-seen values: a user may lower a limit in annotations and labels, but not raise it later.

What comes in: candidates of one limit holder, its first-seen values. What goes out: the candidates as they count, and
the values to remember.

The rule: extended resources cannot change while a pod lives; annotations and labels can. Their first value is kept for
the pod's life. A raise is refused and reported. To remove a declaration is a raise, too. So is a larger amount on
another device.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from exporter.limits.answers import Candidate, Seen, Subject
from exporter.limits.devices import LeafDevice, Place, device_name
from exporter.limits.explaining import size
from exporter.limits.rows import Trust, What
from exporter.model import EnforcedBy, Scope

_MUTABLE = (Trust.SCHEDULER, Trust.USER)
_LOWER = "a running pod can only lower its limit"
_REMOVED = "a declaration was removed from the running pod: the amount first seen still counts"

Key = tuple[Subject, Scope, str | None, Trust]


def known(first_seen: Iterable[Seen]) -> dict[Key, Seen]:
    """Index first-seen values by limit holder, scope, device and trust."""
    return {(seen.subject, seen.scope, seen.place, seen.trust): seen for seen in first_seen}


def hold(
    subject: Subject,
    scope: Scope,
    candidates: Sequence[Candidate],
    first: Mapping[Key, Seen],
    devices: Iterable[LeafDevice],
) -> tuple[list[Candidate], list[Seen]]:
    """Refuse raises among a limit holder's candidates; return the candidates, and new first-seen values."""
    kept, new = list(candidates), []
    places: dict[str | None, Place | None] = {c.place.name if c.place else None: c.place for c in candidates}
    for other, _, name, _ in first:
        if other == subject and name not in places:
            places[name] = None if name is None else _place(name, devices)
    for (name, place), trust in ((item, trust) for item in places.items() for trust in _MUTABLE):
        mine = [c for c in kept if c.place == place and c.trust is trust and c.what is not What.COMPUTE and c.valid]
        now = min(mine, key=lambda c: (c.bytes or 0, c.name), default=None)
        before = first.get((subject, scope, name, trust)) or _elsewhere(subject, scope, trust, first)
        if now is None:
            if before is not None and before.place == name and _missed(place, trust, candidates):
                kept.append(_remembered(before, place, "removed", _REMOVED))
        elif before is not None and (now.bytes or 0) > before.bytes:
            refused = f"the raise from {size(before.bytes)} to {size(now.bytes)} is refused: {_LOWER}"
            kept = [replace(c, excluded=refused) if c in mine else c for c in kept]
            kept.append(_remembered(before, place, "raised", f"{now.name}: {refused}"))
        elif (before is None or before.place != name) and now.bytes is not None:
            new.append(Seen(subject, scope, name, trust, now.system, now.bytes))
    return kept, new


def _elsewhere(subject: Subject, scope: Scope, trust: Trust, first: Mapping[Key, Seen]) -> Seen | None:
    """Find the largest first-seen value on other devices: another device's name must not lead to a larger share."""
    others = (seen for key, seen in first.items() if (key[0], key[1], key[3]) == (subject, scope, trust))
    return max(others, key=lambda seen: (seen.bytes, seen.place or ""), default=None)


def _missed(place: Place | None, trust: Trust, candidates: Sequence[Candidate]) -> bool:
    """
    Return whether a removed declaration counts as taken away from this place.

    It does not if a candidate of the same trust still applies to every device. Nor if the device only got another name:
    an index while the devices were unknown, then its UUID.
    """
    left = [c for c in candidates if c.trust is trust and c.what is not What.COMPUTE and c.valid]
    known = place is None or place.key is not None
    return not any(c.place is None for c in left) and (known or not left)


def as_data(seen: Seen) -> dict[str, str | int | None]:
    """Convert to plain data, for JSON on disk."""
    return {
        "container": seen.subject.container,
        "claim": seen.subject.claim,
        "scope": seen.scope.value,
        "device": seen.place,
        "trust": seen.trust.name.lower(),
        "system": seen.system,
        "bytes": seen.bytes,
    }


def from_data(data: Mapping[str, object]) -> Seen:
    """Read what `as_data` made. Raises ValueError for any other data."""
    container, claim, device = data.get("container"), data.get("claim"), data.get("device")
    system, amount = data.get("system"), data.get("bytes")
    trust = str(data.get("trust")).upper()
    texts = isinstance(container, str) and isinstance(claim, str) and isinstance(system, str)
    if not texts or not isinstance(device, str | None) or not isinstance(amount, int) or trust not in Trust.__members__:
        raise ValueError(f"not a value as first seen: {ascii(data)[:200]}")
    subject = Subject(str(container), str(claim))
    return Seen(subject, Scope(str(data.get("scope"))), device, Trust[trust], str(system), amount)


def _remembered(seen: Seen, place: Place | None, text: str, problem: str) -> Candidate:
    return Candidate(
        None,
        seen.system,
        What.MEMORY,
        seen.trust,
        seen.subject,
        seen.scope,
        text,
        bytes=seen.bytes,
        place=place,
        enforced_by=EnforcedBy.NONE,
        problems=(problem,),
    )


def _place(name: str, devices: Iterable[LeafDevice]) -> Place:
    keys = [device.key for device in devices if device.key is not None and device_name(device.key) == name]
    return Place(name, keys[0] if keys else None)
