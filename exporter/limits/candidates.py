"""
Terms to candidates: bytes (or a share of a device) on a device, and whether they can count.

What comes in: a system and a pod with its surroundings. What goes out: one candidate per limit holder and named device,
and one for any device.

The rule:
- Zero means undeclared.
- More than the device, or less than a MiB, is invalid.
- An amount whose unit does not fit the node does not count. Nor does a share, if the node hands out more memory than
  its devices have.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from fractions import Fraction
from typing import Any

from exporter.limits.answers import ZERO, Candidate
from exporter.limits.calibration import SET_UNIT, Calibration, Fit, calibrate
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
"""A limit may exceed the device by this factor: vendors round, and some include reserved memory."""
SMALLEST = 2**20
"""Bytes. No program runs with less: a unit was forgotten, such as 8 bytes in `gpu-memory.limit: "8"`."""
LARGEST_PLAUSIBLE = 2**40
"""Bytes. Above this the smallest possible unit is taken, if the unit is unknown: 8000 are MiB."""
GRANTED = "granted"
"""The decoder of a resource that hands a device out, and declares no amount of memory."""
LARGEST_DEVICE = 4 * 2**40
"""Bytes. No device has more, also if the devices are unknown: `gpumem: 16Gi` is 16 PiB."""


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
    """
    Make a candidate for each device of a term.

    A record of devices may be forged. So its devices are added, and the candidate for any device stays.
    """
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
        alone=_alone(term.asked),
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
    """Add the enforcement. An MPS client stays one, whatever its author switches off."""
    enforced_by, proven = _enforced_by(term.asked.scene, term.asked.row, base.place)
    return replace(
        base,
        enforced_by=EnforcedBy.NONE if term.amount.shared or _bypasses(term) else enforced_by,
        enforcement_proven=proven,
        mps=proven and enforced_by is EnforcedBy.MPS and _handed_out(term.asked),
    )


def _handed_out(asked: Asked) -> bool:
    """Return whether more than the pod's author proves it: a claim, a scheduler, or a resource that the node has."""
    node, row, key = asked.scene.node, asked.row, asked.key
    if row.mechanism is not Mechanism.RESOURCE:
        return row.trust <= Trust.SCHEDULER
    return node is None or key in node.advertised() or any(held.resource == key for held in asked.scene.pod.held)


def _alone(asked: Asked) -> bool:
    """
    Return whether the pod's author alone says so: in a resource that the node lacks, where it has another one for that.

    A node of HAMi has none of its resources for memory: its scheduler alone knows them.
    """
    node, row = asked.scene.node, asked.row
    if node is None or row.mechanism is not Mechanism.RESOURCE or _handed_out(asked):
        return False
    has = node.advertised()
    return any(
        other.key in has and other.mechanism is row.mechanism and other.what is row.what and other.decoder != GRANTED
        for other in asked.scene.system.rows
    )


def _valued(base: Candidate, term: Term, count: Fraction, unit: Calibration) -> Candidate:
    scene, row = term.asked.scene, term.asked.row
    if term.value is None:
        note = term.amount.note or "allocates a device, and declares no amount of memory"
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
        return base.invalidated(f"{float(share):.4g} of one device is more than the device")
    if row.what is What.COMPUTE:
        return base
    if unit.fit is Fit.MISFIT:
        return replace(base, excluded=unit.why, problems=(*base.problems, unit.why))
    # The memory of the device, or of all devices if they are alike.
    memories = {device.memory for device in _meant(scene.devices, base.place)}
    memory = memories.pop() if len(memories) == 1 else None
    if memory is None:
        why = "which device it is of, and devices differ" if scene.devices else "how much memory the device has"
        return replace(base, excluded=f"a share without an amount: it is unknown {why}")
    return _checked(scene.devices, replace(base, bytes=int(share * memory)))


def _of_memory(base: Candidate, value: Fraction, term: Term, unit: Calibration) -> Candidate:
    bytes_of_unit = term.amount.unit or unit.unit
    if unit.fit is Fit.ASSUMED and value * bytes_of_unit > LARGEST_PLAUSIBLE:
        bytes_of_unit = min(term.asked.row.units)
    sized = replace(base, bytes=int(value * bytes_of_unit), factor=1 if term.amount.unit else unit.factor)
    if unit.fit is Fit.MISFIT:
        return replace(sized, excluded=unit.why, problems=(*sized.problems, unit.why))
    if unit.fit is Fit.ASSUMED:
        doubt = unit.why or f"unit assumed, because installations use different ones; {SET_UNIT}"
        sized = replace(sized, doubts=(*sized.doubts, doubt), problems=(*sized.problems, doubt))
    if term.asked.row.scaled and unit.fit is not Fit.FITS and _may_be_larger(term.asked.scene.devices, sized):
        sized = replace(sized, factor=None)
    return _checked(term.asked.scene.devices, sized)


def _may_be_larger(devices: Sequence[LeafDevice], sized: Candidate) -> bool:
    """
    Return whether twice the amount is still less than the device: then the installation may count in larger units.

    Twice the half of a device is the whole of it, and a user who wants a whole device writes no amount.
    """
    largest = max((device.memory or 0 for device in _meant(devices, sized.place)), default=0)
    return not largest or 2 * (sized.bytes or 0) < largest


def _checked(devices: Sequence[LeafDevice], sized: Candidate) -> Candidate:
    """Refuse an amount above any device's memory, and one too small for any program."""
    amount = sized.bytes or 0
    largest = max((device.memory or 0 for device in _meant(devices, sized.place)), default=0)
    if amount < SMALLEST:
        return sized.invalidated(f"{amount} bytes are less than 1 MiB; is a unit missing?")
    if amount > (largest * ABOVE_DEVICE if largest else LARGEST_DEVICE):
        than = f"the {largest} of the device" if largest else "any device has"
        return sized.invalidated(f"{amount} bytes are more than {than}")
    return sized


def _calibrated(scene: Scene, row: Row) -> Calibration:
    """
    Check the row's unit.

    A share is a share of the advertised memory. So for a share, the unit of the memory row must fit the devices.
    """
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
    """Map each container ("" for the pod) to the devices that rows without amounts record for it."""
    places: dict[str, dict[str, Place]] = defaultdict(dict)
    for row in (row for row in scene.system.rows if row.what is What.DEVICE):
        for text, asked in readings(scene, row):
            with suppress(DeclarationError):
                for amount in decode(text, asked):
                    # A device that the node lacks is skipped here: it only tells where amounts count.
                    with suppress(DeclarationError):
                        if amount.where is not None:
                            place = locate(amount.where, scene.devices)
                            places[subject_of(asked, amount).container][place.name] = place
    return {container: tuple(named.values()) for container, named in places.items()}


def _enforced_by(scene: Scene, row: Row, place: Place | None) -> tuple[EnforcedBy, bool]:
    """Return the enforcement, and whether more than the pod's own text proves it."""
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
    """Read a device's mode in its plugin's register; for an unknown device, the mode that all devices share."""
    modes = registered_modes(register)
    if place is not None and place.key is not None and place.key.uuid in modes:
        return modes[place.key.uuid]
    return next(iter(modes.values())) if len(set(modes.values())) == 1 else None


def _bypasses(term: Term) -> tuple[str, ...]:
    """Describe the variables by which the pod's author switched the enforcement off, in any container concerned."""
    scene, claim, container = term.asked.scene, term.asked.claim, term.subject.container
    if claim is not None:
        containers = using(scene.pod, claim, term.asked.claimed)
    else:
        containers = [declared for declared in scene.pod.containers if container in {"", declared.name}]
    off = {"", "0", "false"}
    return tuple(
        f"the environment variable {variable} switches off the enforcement of {scene.system.name}"
        for variable in scene.system.bypass_env
        if any(declared.env.get(variable, "").lower() not in off for declared in containers)
    )


def _remarks(term: Term) -> Iterable[str]:
    """Warn that the plugin may refuse several replicas, unless the kubelet has handed them out."""
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
        doubts.append("the meaning of this declaration is not certain")
    if row.scope is Scope.PROCESS and not scene.options.mps_container:
        doubts.append("the limit applies to each process, not to the container")
    return tuple(doubts)


def _meant(devices: Iterable[LeafDevice], place: Place | None) -> list[LeafDevice]:
    if place is None or place.key is None:
        return list(devices)
    return [device for device in devices if device.key == place.key]
