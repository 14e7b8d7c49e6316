"""
Terms to candidates: bytes (or a share of a device) on a device, and whether they can count.

What comes in: a system and a pod with its surroundings. What goes out: candidates, one per subject and device that is
named, and beside them what holds on any device.

The law: zero means undeclared; more than the device, or less than a MiB, is invalid; a unit that does not fit the node
counts for nothing, nor does a share where the node hands out more than its devices have.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from exporter.limits.answers import Candidate
from exporter.limits.calibration import Calibration, Fit, calibrate
from exporter.limits.decoders import Invalid, decode
from exporter.limits.decoders.claims import where_of
from exporter.limits.decoding import DeclarationError, Scene, locate, shown
from exporter.limits.devices import LeafDevice, Place
from exporter.limits.row_texts import readings, using
from exporter.limits.rows import Confidence, Per, Row, What
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
    found: list[Candidate] = []
    for row in scene.system.rows:
        if row.what in {What.MEMORY, What.MEMORY_RATIO, What.COMPUTE}:
            unit = None if row.what is What.COMPUTE else _calibrated(scene, row)
            for term in terms(scene, row):
                if isinstance(term, Broken):
                    found.append(_invalid(scene, row, term))
                else:
                    found += _placed(scene, row, term, places, unit)
    return found


def _placed(
    scene: Scene,
    row: Row,
    term: Term,
    places: Mapping[str, tuple[Place, ...]],
    unit: Calibration | None,
) -> list[Candidate]:
    """Put a term on its devices. A forgeable record of devices adds places; what holds anywhere stays beside them."""
    enforced_by, proven = _enforced_by(scene, row, term)
    base = Candidate(
        row,
        scene.system.name,
        row.what,
        row.trust,
        term.subject,
        Scope.CONTAINER if row.scope is Scope.PROCESS and scene.options.mps_container else row.scope,
        shown(term.text),
        enforced_by=enforced_by,
        enforcement_proven=proven,
        doubts=_doubts(scene, row, term),
        problems=_bypasses(scene, term),
        key=term.asked.key,
    )
    try:
        place = _place(scene, row, term)
        count, problem = divisor(scene, row, term)
    except DeclarationError as error:
        return [replace(base, excluded=f"invalid: {error}", invalid=True)]
    if problem:
        base = replace(base, problems=(*base.problems, problem))
    spots: list[Place | None] = [place]
    if place is None:
        recorded = places.get(term.subject.container) or places.get("") or ()
        spots += recorded
    return [_valued(scene, replace(base, place=spot), term, count, unit) for spot in spots]


def _valued(scene: Scene, base: Candidate, term: Term, count: Fraction, unit: Calibration | None) -> Candidate:
    row = base.row
    if row is None or term.value is None:
        note = term.amount.note or "hands out a device, and declares no amount"
        return replace(base, grant=True, excluded=note)
    if term.value == 0:
        return replace(base, excluded="zero: nothing is declared")
    value = term.value / count
    if row.what is What.MEMORY:
        return _of_memory(scene, base, value, term, unit)
    share = value * (term.amount.unit or row.units[0])
    if row.per is not Per.DEVICE and count == 1 and share > 1 and share.denominator == 1:
        share = Fraction(1)  # 200 percent are two whole devices
    if share > 1:
        return replace(base, ratio=share, excluded=f"invalid: {float(share):.4g} of one device", invalid=True)
    if row.what is What.COMPUTE:
        return replace(base, ratio=share)
    if unit is not None and unit.fit is Fit.MISFIT:
        return replace(base, ratio=share, excluded=unit.why, problems=(*base.problems, unit.why))
    memory = _memory(scene, base.place)
    if memory is None:
        why = (
            "the memory of the device is not known" if not scene.devices else "its device is not known, and they differ"
        )
        return replace(base, ratio=share, excluded=f"a share, but {why}")
    return _checked(scene, replace(base, ratio=share, bytes=int(share * memory)))


def _of_memory(scene: Scene, base: Candidate, value: Fraction, term: Term, unit: Calibration | None) -> Candidate:
    row = base.row
    if row is None or unit is None:
        return base
    bytes_of_unit = term.amount.unit or unit.unit
    if unit.fit is Fit.ASSUMED and value * bytes_of_unit > LARGEST_PLAUSIBLE:
        bytes_of_unit = min(row.units)
    sized = replace(base, bytes=int(value * bytes_of_unit))
    if unit.fit is Fit.MISFIT:
        return replace(sized, excluded=unit.why, problems=(*sized.problems, unit.why))
    if unit.fit is Fit.ASSUMED:
        doubt = unit.why or "installations differ in the unit"
        sized = replace(sized, doubts=(*sized.doubts, doubt), problems=(*sized.problems, doubt))
    return _checked(scene, sized)


def _checked(scene: Scene, sized: Candidate) -> Candidate:
    """Refuse what no device can hold, and what nothing can run with."""
    amount = sized.bytes or 0
    largest = _largest(scene, sized.place)
    if amount < SMALLEST:
        return replace(sized, excluded=f"invalid: {amount} bytes are less than a MiB", invalid=True)
    if amount > (largest * ABOVE_DEVICE if largest else LARGEST_DEVICE):
        than = f"the device's {largest}" if largest else "any device has"
        return replace(sized, excluded=f"invalid: {amount} bytes are more than {than}", invalid=True)
    return sized


def _calibrated(scene: Scene, row: Row) -> Calibration:
    """Check the row's unit; a share is one of what the node advertises, so the unit of that has to fit the devices."""
    sizes = (each for each in scene.system.rows if each.what is What.MEMORY and each.calibrate == row.calibrate)
    return calibrate(next(sizes, row) if row.calibrate else row, scene.node, scene.devices)


def _place(scene: Scene, row: Row, term: Term) -> Place | None:
    if term.amount.place is not None:
        return term.amount.place
    if term.amount.where is not None:
        return locate(term.amount.where, scene.devices)
    if row.mechanism is Mechanism.CLAIM and len(term.asked.claimed) == 1:
        return locate(where_of(term.asked.claimed[0]), scene.devices)
    return None


def _places(scene: Scene) -> dict[str, tuple[Place, ...]]:
    """Read where devices are recorded apart from amounts: container ("" for the pod) to places."""
    found: dict[str, dict[str, Place]] = {}
    for row in scene.system.rows:
        if row.what is not What.DEVICE:
            continue
        for text, asked in readings(scene, row):
            decoded = decode(text, asked)
            for amount in () if isinstance(decoded, Invalid) else decoded:
                if amount.where is None:
                    continue
                try:
                    place = locate(amount.where, scene.devices)
                except DeclarationError:
                    continue  # named again below, as a problem of the amounts that it was to place
                found.setdefault(subject_of(row, asked, amount).container, {})[place.name] = place
    return {container: tuple(named.values()) for container, named in found.items()}


def _invalid(scene: Scene, row: Row, broken: Broken) -> Candidate:
    return Candidate(
        row,
        scene.system.name,
        row.what,
        row.trust,
        broken.subject,
        row.scope,
        shown(broken.text),
        excluded=f"invalid: {broken.reason}",
        invalid=True,
        enforced_by=row.enforced_by or scene.system.enforced_by,
        key=broken.key,
    )


def _enforced_by(scene: Scene, row: Row, term: Term) -> tuple[EnforcedBy, bool]:
    """Tell who enforces, and whether more than the pod's author says so."""
    proven = scene.proven
    usual = row.enforced_by or scene.system.enforced_by
    node = scene.node or NodeFacts()
    texts = {"node-label": node.labels, "pod-label": scene.pod.labels, "pod-annotation": scene.pod.annotations}
    for when in scene.system.enforced_when:
        value = texts[when.at].get(when.key)
        if value is not None and when.value in {"", value}:
            usual = when.enforced_by
            proven = proven and when.at == "node-label"
            break
    return EnforcedBy.NONE if term.amount.shared or _bypasses(scene, term) else usual, proven


def _bypasses(scene: Scene, term: Term) -> tuple[str, ...]:
    """Name the variables with which the pod's author switched the enforcement off, in any container concerned."""
    claim, container = term.asked.claim, term.subject.container
    if claim is not None:
        containers = using(scene.pod, claim, term.asked.claimed)
    else:
        containers = [each for each in scene.pod.containers if container in {"", each.name}]
    off = {"", "0", "false"}
    return tuple(
        f"env {variable} switches {scene.system.name}'s enforcement off"
        for variable in scene.system.bypass_env
        if any(each.env.get(variable, "").lower() not in off for each in containers)
    )


def _doubts(scene: Scene, row: Row, term: Term) -> tuple[str, ...]:
    found = []
    if row.confidence is Confidence.UNSURE:
        found.append("what the row means is not certain")
    if row.scope is Scope.PROCESS and not scene.options.mps_container:
        found.append("a limit of each process, not of the container")
    if row.scope is Scope.CLAIM and term.asked.claim is not None and term.asked.claim.consumers > 1:
        found.append(f"{term.asked.claim.consumers} pods share the claim")
    return tuple(found)


def _memory(scene: Scene, place: Place | None) -> int | None:
    """Tell the memory of the device, or of all if they are alike."""
    memories = {device.memory for device in _meant(scene.devices, place)}
    return memories.pop() if len(memories) == 1 else None


def _largest(scene: Scene, place: Place | None) -> int:
    return max((device.memory or 0 for device in _meant(scene.devices, place)), default=0)


def _meant(devices: Iterable[LeafDevice], place: Place | None) -> list[LeafDevice]:
    if place is None or place.key is None:
        return list(devices)
    return [device for device in devices if device.key == place.key]
