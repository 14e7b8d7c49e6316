"""
The sources of a pod's limits, for people and for scripts.

What comes in: a resolution. What goes out: the list that `gpusteward explain --json` prints, or text.

The rule: the JSON's keys are a promise: `namespace`, `pod`, `container`, `device`, `limit_bytes`, `system`, `source`,
`scope`, `enforced_by`, `context`, `candidates`, `problems`, `mps`. Limits of a pod or a claim have `container: null`.
A limit on each device that the limit holder has, has `device: null`. The text holds no control characters.
"""

from collections.abc import Iterator
from typing import Any

from exporter.base.printable import printable
from exporter.limits.answers import Candidate, Resolution, ResolvedLimit
from exporter.limits.rows import What
from exporter.model import Context, EnforcedBy, Scope

_CONTEXTS = {
    Context.INCLUDED: "the limit includes CUDA contexts",
    Context.EXCLUDED: "the limit does not include CUDA contexts: they may use more memory",
    Context.UNKNOWN: "it is unknown whether the limit includes CUDA contexts: they may use more memory",
}
_UNITS = ((2**30, "GiB"), (2**20, "MiB"))


def as_data(resolution: Resolution) -> list[dict[str, Any]]:
    """Make the list that is printed as JSON."""
    return [
        {
            "namespace": resolution.namespace,
            "pod": resolution.name,
            "container": limit.subject.container or None,
            "device": limit.place.name if limit.place else None,
            "limit_bytes": limit.bytes,
            "system": limit.system,
            "source": limit.source.value,
            "scope": limit.scope.value,
            "enforced_by": limit.enforced_by.value,
            "context": limit.context.value,
            "candidates": [_candidate(candidate) for candidate in limit.candidates],
            "problems": [*limit.problems, *limit.remarks],
            "mps": limit.mps,
        }
        for limit in resolution.limits
    ]


def as_text(resolution: Resolution, made_by: str = "") -> str:
    """Write the text for people. `made_by`: the object with the pod template, if no pod of it exists yet."""
    title = f"pod {resolution.namespace}/{resolution.name}{f' of {made_by}' if made_by else ''}"
    return "".join(f"{printable(line)}\n" for line in (title, *_lines(resolution)))


def _candidate(candidate: Candidate) -> dict[str, Any]:
    return {
        "row": candidate.row_name,
        "key": candidate.key or None,
        "text": candidate.text,
        "bytes": candidate.bytes,
        "ratio": None if candidate.ratio is None else float(candidate.ratio),
        "trust": candidate.trust.name.lower(),
        "taken": candidate.taken,
        "why": candidate.why,
    }


def _lines(resolution: Resolution) -> Iterator[str]:
    if not resolution.limits:
        yield "  declares nothing about devices"
    for limit in resolution.limits:
        yield from _limit(limit)
    for limit in (limit for limit in resolution.elsewhere if limit.bytes is not None):
        yield f"  {_subject(limit)} on any other device: {size(limit.bytes)}"


def _limit(limit: ResolvedLimit) -> Iterator[str]:
    place = limit.place.name if limit.place else "each device it holds"
    per_process = ", each process" if limit.scope is Scope.PROCESS else ""
    share = "" if limit.compute is None else f", {float(limit.compute):.4g} of the compute"
    memory = "no memory limit" if limit.bytes is None else size(limit.bytes)
    yield f"  {_subject(limit)} on {place}: {memory}{per_process}{share}"
    guard = "no other component" if limit.enforced_by is EnforcedBy.NONE else limit.enforced_by
    yield f"    system {limit.system}, declared by {limit.source}, scope {limit.scope}, enforced by {guard}"
    if limit.mps:
        yield "    an MPS client: policy.mps in the config decides what follows when it is over its limit"
    if limit.bytes is not None:
        yield f"    {_CONTEXTS[limit.context]}"
    for candidate in limit.candidates:
        mark = "*" if candidate.taken else "-"
        yield f"    {mark} {_declared(candidate)} (trust {candidate.trust.name.lower()}): {candidate.why}"
    for problem in (*limit.problems, *limit.remarks):
        yield f"    ! {problem}"
    if limit.bytes is not None:
        for reason in limit.report_only:
            yield f"    reported, not enforced: {reason}"


def _declared(candidate: Candidate) -> str:
    """Say where an amount is written; of one that is remembered, what became of its declaration."""
    if candidate.row is None:
        later = f"the declaration was {candidate.text} later"
        return f"{candidate.system}, as first seen {_amount(candidate)}; {later}"
    return f"{candidate.name} = {candidate.text!r}: {_amount(candidate)}"


def _amount(candidate: Candidate) -> str:
    if candidate.what is not What.COMPUTE:
        return size(candidate.bytes)
    return f"{float(candidate.ratio):.4g} of the compute" if candidate.ratio else "no share of the compute"


def _subject(limit: ResolvedLimit) -> str:
    if limit.subject.claim:
        return f"claim {limit.subject.claim}"
    return f"container {limit.subject.container}" if limit.subject.container else "the pod"


def size(amount: int | None) -> str:
    """Write bytes for people; an unknown amount is not zero."""
    if amount is None:
        return "no amount"
    for unit, name in _UNITS:
        if amount >= unit:
            return f"{amount / unit:.4g} {name}"
    return f"{amount} B"
