"""
The amounts that a row declares: its texts, decoded, one term per limit holder.

What comes in: a system's rows and the pod with its surroundings. What goes out: terms in the row's unit, or the reason
why a text is invalid. The amounts of a pod's containers are added, and so are a claim's shares of one device.

The rule: if one part is invalid, there is no sum.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from exporter.limits.answers import Subject
from exporter.limits.decoders import decode
from exporter.limits.decoders.claims import where_of
from exporter.limits.decoding import Amount, Asked, Counts, DeclarationError, Scene
from exporter.limits.patterns import fill
from exporter.limits.row_texts import readings
from exporter.limits.rows import Per, Row, What
from exporter.model import Mechanism, Scope

MOST_DEVICES = 64
"""The most devices of a node, if they are unknown."""


@dataclass(frozen=True, slots=True)
class Term:
    """One amount of one limit holder; `candidates` makes candidates of it."""

    subject: Subject
    value: Fraction | None
    text: str
    amount: Amount
    asked: Asked


@dataclass(frozen=True, slots=True)
class Broken:
    """A text that cannot be used, and the reason."""

    subject: Subject
    key: str
    text: str
    reason: str


def terms(scene: Scene, row: Row) -> Iterator[Term | Broken]:
    """Yield the row's amount for each limit holder; for a pod, the sum over its containers."""
    parsed: list[Term] = []
    for text, asked in readings(scene, row):
        try:
            amounts = decode(text, asked)
        except DeclarationError as error:
            yield Broken(subject_of(asked), asked.key, text, str(error))
            if row.scope is Scope.POD:
                return  # a part of the sum is missing
        else:
            parsed += [Term(subject_of(asked, amount), amount.value, text, amount, asked) for amount in amounts]
    if row.scope is Scope.POD and row.mechanism is Mechanism.RESOURCE:
        yield from _summed(parsed)
    elif row.mechanism is Mechanism.CLAIM:
        yield from _shares(parsed)
    else:
        yield from parsed


def _summed(terms: list[Term]) -> Iterator[Term]:
    """Add up a pod's containers: all that keep running, or the largest init container if that is more."""
    known = [(term, term.value) for term in terms if term.value is not None]
    if not known:
        yield from terms[:1]
        return
    staying = sum((value for term, value in known if _stays(term)), Fraction(0))
    value = max([staying, *(value for term, value in known if not _stays(term))])
    text = " + ".join(term.text for term in terms)
    yield replace(terms[0], value=value, text=text)


def _shares(terms: list[Term]) -> Iterator[Term]:
    """Add up several shares that one claim has of one device."""
    by_device: dict[tuple[Subject, str], Term] = {}
    for term in terms:
        key = term.subject, " ".join(str(where_of(device)) for device in term.asked.claimed)
        before = by_device.get(key)
        if before is not None and before.value is not None and term.value is not None:
            text = f"{before.text} + {term.text}"
            by_device[key] = replace(before, value=before.value + term.value, text=text)
        else:
            by_device[key] = term
    yield from by_device.values()


def _stays(term: Term) -> bool:
    return term.asked.container is None or term.asked.container.stays


def subject_of(asked: Asked, amount: Amount | None = None) -> Subject:
    """Return the limit holder of a text: the pod, if the text names no container."""
    row = asked.row
    if row.scope is Scope.CLAIM and asked.claim is not None:
        return Subject(claim=f"{asked.claim.namespace}/{asked.claim.name}")
    if row.scope in {Scope.POD, Scope.CLAIM}:
        return Subject()
    if amount is not None and amount.container is not None:
        return Subject(amount.container)
    return Subject(asked.container.name if asked.container else "")


def divisor(term: Term) -> tuple[Fraction, str]:
    """
    Find the number of devices by which a total is divided (1 if not declared), and a problem or "".

    An impossible count in a label or annotation is ignored: it must not remove a resource's limit. An impossible count
    in a resource raises DeclarationError, because it is part of the request.
    """
    row, problem = term.asked.row, ""
    for key in row.divide_by if row.per is Per.TOTAL else ():
        for count in (other for other in term.asked.scene.system.rows if other.what is What.COUNT and other.key == key):
            try:
                value = _count(count.at(fill(key, term.asked.stars)), term)
            except DeclarationError as error:
                if count.trust <= row.trust:
                    raise
                problem = f"{error}: ignored"
            else:
                if value:
                    return value, problem
    return Fraction(1), problem


def _count(row: Row, term: Term) -> Fraction:
    scene, name = term.asked.scene, term.subject.container
    found = scene.counts.get((row.mechanism, row.key))
    if found is None:
        found = scene.counts[row.mechanism, row.key] = _counts(row, scene)
    if isinstance(found, DeclarationError):
        raise found
    # Each container states the pod's number of devices: so the largest counts, not the sum.
    counted = (found.get(each, Fraction(0)) for each in {"", name}) if name else found.values()
    total = max(counted, default=Fraction(0))
    most = len(scene.devices) or MOST_DEVICES
    if total.denominator != 1 or total > most:
        raise DeclarationError(f"{row.key}: {float(total):g} is not a possible number of devices (at most {most})")
    return total


def _counts(row: Row, scene: Scene) -> Counts:
    found: dict[str, Fraction] = {}
    for text, asked in readings(scene, row):
        try:
            amounts = decode(text, asked)
        except DeclarationError as error:
            return DeclarationError(f"{row.key}: {error}")
        for amount in amounts:
            whose = amount.container or (asked.container.name if asked.container else "")
            found[whose] = max(found.get(whose, Fraction(0)), amount.value or Fraction(0))
    return found
