"""
Terms to candidates: bytes (or a share of a device) on a device, and whether they can count.

What comes in: a system and a pod with its surroundings. What goes out: candidates, one per subject and device that is
named, and beside them what holds on any device.

The law: zero means undeclared; more than the device, or less than a MiB, is invalid; a unit that does not fit the node
counts for nothing, nor does a share where the node hands out more than its devices have.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from exporter.limits.answers import ZERO, Candidate
from exporter.limits.calibration import Calibration, Fit, calibrate
from exporter.limits.decoders import decode
from exporter.limits.decoders.claims import where_of
from exporter.limits.decoding import Asked, DeclarationError, Scene, locate, quantity, shown
from exporter.limits.devices import LeafDevice, Place
from exporter.limits.node_devices import registered_modes
from exporter.limits.row_texts import readings, using
from exporter.limits.rows import Confidence, Per, Row, Trust, What
from exporter.limits.terms import Broken, Term, divisor, subject_of, terms
from exporter.model import EnforcedBy, Mechanism, NodeFacts, Scope

ABOVE_DEVICE = Fraction(105, 100)
"""A limit may exceed the device by this much: vendors round, and count reserved memory or not."""
SMALLEST = 2**20
"""Bytes. Below this nothing can run on a device, and a unit was forgotten: `gpu-memory.limit: "8"` are 8 bytes."""
LARGEST_PLAUSIBLE = 2**40
"""Bytes. Where the unit is open, 8000 are MiB."""
LARGEST_DEVICE = 4 * 2**40
"""Bytes. Above this no device can be meant (`gpumem: 16Gi` is 16 PiB), also where the devices are not known."""


def candidates(scene: Scene) -> list[Candidate]:
    """List the candidates of one system."""
    places = _places(scene)
    result: list[Candidate] = []
    for row in scene.system.rows:
        if row.what in {What.MEMORY, What.MEMORY_RATIO, What.COMPUTE}:
            unit = Calibration(row.units[0], Fit.GIVEN) if row.what is What.COMPUTE else _calibrated(scene, row)
            for term in terms(scene, row):
                if isinstance(term, Broken):
                    enforced_by = row.enforced_by or scene.system.enforced_by
                    broken = _candidate(scene, row, row.scope, term, term.key, enforced_by=enforced_by)
                    result.append(broken.invalidated(term.reason))
                else:
                    result += _placed(term, places, unit)
    return result


def _candidate(scene: Scene, row: Row, scope: Scope, term: Term | Broken, key: str, **more: Any) -> Candidate:
    text, context = shown(term.text), row.context or scene.system.context
    more |= {"key": key, "context": context}
    return Candidate(row, scene.system.name, row.what, row.trust, term.subject, scope, text, **more)


def _placed(term: Term, places: Mapping[str, tuple[Place, ...]], unit: Calibration) -> list[Candidate]:
    """Put a term on its devices. A forgeable record of devices adds places; what holds anywhere stays beside them."""
    scene, row = term.asked.scene, term.asked.row
    bypasses = _bypasses(term)
    base = _candidate(
        scene,
        row,
        Scope.CONTAINER if row.scope is Scope.PROCESS and scene.options.mps_container else row.scope,
        term,
        term.asked.key,
        doubts=_doubts(term),
        problems=bypasses,
        remarks=tuple(_remarks(term)),
    )
    try:
        place = _place(term)
        count, problem = divisor(term)
    except DeclarationError as error:
        return [_guarded(base, term).invalidated(str(error))]
    if problem:
        base = replace(base, problems=(*base.problems, problem))
    spots: list[Place | None] = [place]
    if place is None:
        spots += places.get(term.subject.container) or places.get("") or ()
    return [_valued(_guarded(replace(base, place=spot), term), term, count, unit) for spot in spots]


def _guarded(base: Candidate, term: Term) -> Candidate:
    """Say who keeps it. An MPS client stays one, whatever else its author switches off."""
    enforced_by, proven = _enforced_by(term.asked.scene, term.asked.row, base.place)
    return replace(
        base,
        enforced_by=EnforcedBy.NONE if term.amount.shared or _bypasses(term) else enforced_by,
        enforcement_proven=proven,
        mps=proven and enforced_by is EnforcedBy.MPS and _handed_out(term.asked),
    )


def _handed_out(asked: Asked) -> bool:
    """Say whether more than the pod's author vouches for it: a claim, a scheduler, or a resource that the node has."""
    node, row, key = asked.scene.node, asked.row, asked.key
    if row.mechanism is not Mechanism.RESOURCE:
        return row.trust <= Trust.SCHEDULER
    return node is None or key in node.advertised() or any(held.resource == key for held in asked.scene.pod.held)


def _valued(base: Candidate, term: Term, count: Fraction, unit: Calibration) -> Candidate:
    scene, row = term.asked.scene, term.asked.row
    if term.value is None:
        note = term.amount.note or "hands out a device, and declares no amount"
        return replace(base, grant=True, excluded=note)
    if term.value == 0:
        return replace(base, excluded=ZERO)
    value = term.value / count
    if row.what is What.MEMORY:
        return _of_memory(base, value, term, unit)
    share = value * (term.amount.unit or row.units[0])
    if row.per is not Per.DEVICE and count == 1 and share > 1 and share.denominator == 1:
        share = Fraction(1)  # 200 percent are two whole devices
    base = replace(base, ratio=share)
    if share > 1:
        return base.invalidated(f"{float(share):.4g} of one device")
    if row.what is What.COMPUTE:
        return base
    if unit.fit is Fit.MISFIT:
        return replace(base, excluded=unit.why, problems=(*base.problems, unit.why))
    # The memory of the device, or of all if they are alike.
    memories = {device.memory for device in _meant(scene.devices, base.place)}
    memory = memories.pop() if len(memories) == 1 else None
    if memory is None:
        why = "its device is not known, and they differ" if scene.devices else "the memory of the device is not known"
        return replace(base, excluded=f"a share, but {why}")
    return _checked(scene.devices, replace(base, bytes=int(share * memory)))


def _of_memory(base: Candidate, value: Fraction, term: Term, unit: Calibration) -> Candidate:
    bytes_of_unit = term.amount.unit or unit.unit
    if unit.fit is Fit.ASSUMED and value * bytes_of_unit > LARGEST_PLAUSIBLE:
        bytes_of_unit = min(term.asked.row.units)
    sized = replace(base, bytes=int(value * bytes_of_unit), factor=1 if term.amount.unit else unit.factor)
    if unit.fit is Fit.MISFIT:
        return replace(sized, excluded=unit.why, problems=(*sized.problems, unit.why))
    if unit.fit is Fit.ASSUMED:
        doubt = unit.why or "installations differ in the unit"
        sized = replace(sized, doubts=(*sized.doubts, doubt), problems=(*sized.problems, doubt))
    if term.asked.row.scaled and unit.fit is not Fit.FITS and _may_be_larger(term.asked.scene.devices, sized):
        sized = replace(sized, factor=None)
    return _checked(term.asked.scene.devices, sized)


def _may_be_larger(devices: Sequence[LeafDevice], sized: Candidate) -> bool:
    """
    Say whether twice the amount would be a part of the device, too: then the installation may count in larger units.

    Twice the half of a device is no part of it: who wants the whole device writes no amount.
    """
    largest = max((device.memory or 0 for device in _meant(devices, sized.place)), default=0)
    return not largest or 2 * (sized.bytes or 0) < largest


def _checked(devices: Sequence[LeafDevice], sized: Candidate) -> Candidate:
    """Refuse what no device can hold, and what nothing can run with."""
    amount = sized.bytes or 0
    largest = max((device.memory or 0 for device in _meant(devices, sized.place)), default=0)
    if amount < SMALLEST:
        return sized.invalidated(f"{amount} bytes are less than a MiB")
    if amount > (largest * ABOVE_DEVICE if largest else LARGEST_DEVICE):
        than = f"the device's {largest}" if largest else "any device has"
        return sized.invalidated(f"{amount} bytes are more than {than}")
    return sized


def _calibrated(scene: Scene, row: Row) -> Calibration:
    """Check the row's unit; a share is one of what the node advertises, so the unit of that has to fit the devices."""
    sizes = (other for other in scene.system.rows if other.what is What.MEMORY and other.calibrate == row.calibrate)
    return calibrate(next(sizes, row) if row.calibrate else row, scene.node, scene.devices)


def _place(term: Term) -> Place | None:
    asked, amount = term.asked, term.amount
    if amount.place is not None:
        return amount.place
    if amount.where is not None:
        return locate(amount.where, asked.scene.devices)
    if asked.row.mechanism is Mechanism.CLAIM and len(asked.claimed) == 1:
        return locate(where_of(asked.claimed[0]), asked.scene.devices)
    return None


def _places(scene: Scene) -> dict[str, tuple[Place, ...]]:
    """Read where devices are recorded apart from amounts: container ("" for the pod) to places."""
    places: dict[str, dict[str, Place]] = defaultdict(dict)
    for row in (row for row in scene.system.rows if row.what is What.DEVICE):
        for text, asked in readings(scene, row):
            with suppress(DeclarationError):
                for amount in decode(text, asked):
                    # A device that is not there is named as a problem of the amounts that it was to place.
                    with suppress(DeclarationError):
                        if amount.where is not None:
                            place = locate(amount.where, scene.devices)
                            places[subject_of(asked, amount).container][place.name] = place
    return {container: tuple(named.values()) for container, named in places.items()}


def _enforced_by(scene: Scene, row: Row, place: Place | None) -> tuple[EnforcedBy, bool]:
    """Name the enforcement, and say whether more than the pod's own text proves it."""
    node = scene.node or NodeFacts()
    texts = {"node-label": node.labels, "pod-label": scene.pod.labels, "pod-annotation": scene.pod.annotations}
    for when in scene.system.enforced_when:
        if when.at == "node-register":
            value = _mode(node.annotations.get(when.key, ""), place)
        else:
            value = texts[when.at].get(when.key)
        if value is not None and when.value in {"", value}:
            return when.enforced_by, scene.proven and when.at.startswith("node-")
    return row.enforced_by or scene.system.enforced_by, scene.proven


def _mode(register: str, place: Place | None) -> str | None:
    """Read the mode of a device in what its plugin registered; of an unknown device it is the mode that all have."""
    modes = registered_modes(register)
    if place is not None and place.key is not None and place.key.uuid in modes:
        return modes[place.key.uuid]
    return next(iter(modes.values())) if len(set(modes.values())) == 1 else None


def _bypasses(term: Term) -> tuple[str, ...]:
    """Name the variables with which the pod's author switched the enforcement off, in any container concerned."""
    scene, claim, container = term.asked.scene, term.asked.claim, term.subject.container
    if claim is not None:
        containers = using(scene.pod, claim, term.asked.claimed)
    else:
        containers = [declared for declared in scene.pod.containers if container in {"", declared.name}]
    off = {"", "0", "false"}
    return tuple(
        f"env {variable} switches {scene.system.name}'s enforcement off"
        for variable in scene.system.bypass_env
        if any(declared.env.get(variable, "").lower() not in off for declared in containers)
    )


def _remarks(term: Term) -> Iterable[str]:
    """Say that the plugin may refuse a pod that asks for several replicas, unless the kubelet has handed them out."""
    asked, name = term.asked, term.subject.container
    with suppress(DeclarationError):
        if asked.row.above_one and quantity(term.text) > 1:
            held = [
                each.replicas for each in asked.scene.pod.held if (each.container, each.resource) == (name, asked.key)
            ]
            if sum(held) <= 1:
                yield f"{asked.key}: {shown(term.text)}: {asked.row.above_one}"


def _doubts(term: Term) -> tuple[str, ...]:
    scene, row = term.asked.scene, term.asked.row
    doubts = []
    if row.confidence is Confidence.UNSURE:
        doubts.append("what the row means is not certain")
    if row.scope is Scope.PROCESS and not scene.options.mps_container:
        doubts.append("a limit of each process, not of the container")
    return tuple(doubts)


def _meant(devices: Iterable[LeafDevice], place: Place | None) -> list[LeafDevice]:
    if place is None or place.key is None:
        return list(devices)
    return [device for device in devices if device.key == place.key]
