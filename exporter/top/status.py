"""
The header of the table: node, age, and warnings.

What comes in: a document, its age, why there is no newer one. What goes out: words and sentences with their tones.

The rule: all reasons why the table may be wrong or old are shown above it.
"""

from collections.abc import Iterator, Mapping

from exporter.api.schema import Document
from exporter.top.figures import clean, span
from exporter.top.names import called, twins
from exporter.top.rows import Tone

Said = tuple[str, Tone]


def status(document: Document, age: float, *, old: bool) -> Iterator[Said]:
    """Yield the parts of the status line; `old`: the document does not describe the present."""
    yield clean(document.node), Tone.STRONG
    if old:
        yield f"STALE, {span(age)} old", Tone.BAD
    else:
        state, tone = ("live", Tone.GOOD) if document.complete else ("INCOMPLETE", Tone.WARN)
        yield f"{state}, {span(age)} ago", tone
    if document.policy is not None:
        yield f"mode {clean(document.policy.mode)}", Tone.WARN if document.policy.mode == "enforce" else Tone.PLAIN
    yield f"round {document.round}", Tone.SOFT
    yield clean(document.program), Tone.SOFT


def warnings(document: Document, age: float, trouble: str, *, stale: bool) -> Iterator[Said]:
    """Yield the warnings, one text each, the most important first."""
    if trouble:
        yield f"daemon: {clean(trouble)}", Tone.BAD
    elif stale:
        yield f"stale: the newest round is {span(age)} old. What is shown may be gone.", Tone.BAD
    if not document.pid_domain_proven:
        yield (
            "host: the driver's process numbers are not proven to be this node's: nothing is attributed to containers.",
            Tone.BAD,
        )
    for breaker in document.policy.breakers if document.policy else ():
        yield (
            f"breaker {clean(breaker.breaker)}: {clean(breaker.detail)}. Nothing is acted on while it is open.",
            Tone.BAD,
        )
    doubled = twins(document.gpus)
    names = {gpu.uuid: called(gpu, doubled) for gpu in reversed(document.gpus)}  # of two with one UUID, the first
    for fault in sorted(document.faults, key=lambda fault: not fault.incomplete):
        about = f" ({_subject(fault.subject, names)})" if fault.subject else ""
        yield f"{clean(fault.source)}: {clean(fault.message)}{about}", Tone.BAD if fault.incomplete else Tone.WARN


def _subject(subject: str, names: Mapping[str, str]) -> str:
    uuid, slash, instance = subject.partition("/")
    if uuid not in names:
        return clean(subject)
    return names[uuid] + clean(f", instance {instance}" if slash else "")
