"""
The page of Events: docs/reference/events.md.

What comes in: the reasons of Events and the texts of actions. What goes out: the text of the page.

The rule: reasons, actions and notes are those of `enforcer.messages`. The moment of each Event is in this module, and
an Event without a moment fails.
"""

from enforcer.messages.action_texts import TEXTS, EventReason
from enforcer.messages.events import BURST, KEPT, REFILL, REMINDER, RENEWAL

HEAD = """\
# Events

Find the Events that gpusteward writes on pods, and what each one says. From mode `warn` on, also in a dry run:

```sh
kubectl get events -A --field-selector reason=GPUMemoryLimitExceeded
```

Each note names the container, the device, the usage, the limit, where the limit was declared, and what follows.
No note mentions a pod of another user.

| reason | type | action | written | note |
|---|---|---|---|---|
"""
MOMENTS = {
    EventReason.EXCEEDED: (
        "Warning",
        "when a pod was over its limit for `warn_after`, and again while the excess lasts",
        "its time over the limit in total, and the action that follows, or why none does",
    ),
    EventReason.FENCED: ("Warning", "when the fence was seen in force", ""),
    EventReason.EVICTED: ("Warning", "before the eviction, because the pod goes with it", ""),
    EventReason.KILLED: ("Warning", "when the memory was seen free", ""),
    EventReason.HELD: (
        "Normal",
        "once for each [reason](reasons.md) that does not end by itself",
        "the action that would follow now, and the reason why it does not",
    ),
    EventReason.INVALID: (
        "Warning",
        "once for each change of what is wrong with a declaration",
        "which limit counts until it is fixed, and each problem",
    ),
}
"""Reason -> type, when it is written, what the note says beyond the excess."""


def page() -> str:
    """Write the page."""
    notes = {one.reason: one.note for texts in TEXTS.values() for one in (texts.before, texts.after) if one is not None}
    rows = []
    for reason in EventReason:
        kind, moment, says = MOMENTS[reason]
        note = says or _plain(notes[reason])
        rows.append(f"| `{reason}` | {kind} | `{reason.action}` | {moment} | {note} |\n")
    often = (
        f"\n## How often\n\n- A series is written again after {REMINDER / 60:g} min at the earliest.\n"
        f"- It begins anew after {RENEWAL / 60:g} min with new figures.\n"
        f"- A pod may cause {BURST} writes at once, and one more each {REFILL / 60:g} min.\n"
        f"- The API server keeps an Event for {KEPT / 3600:g} h after its last write by default.\n"
    )
    return "".join([HEAD, *rows, often])


def _plain(note: str) -> str:
    """Write a note with what its fields stand for. Raises KeyError for a field that is not known here."""
    return note.removeprefix("{excess}. ").format(since="TIME", grace="TIME", how=": SIGNAL")
