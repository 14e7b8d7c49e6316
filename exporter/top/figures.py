"""
Figures and names for a terminal.

What comes in: numbers of the document (None if unknown), and names that users chose. What goes out: short text, one
column per character.

The rule: unknown is a dash, never 0. A character that is not printable ASCII is written as its escape. So it cannot
move the cursor, change a colour, turn the writing direction, or take two columns. Kubernetes' own names are ASCII.
"""

UNKNOWN = "–"  # noqa: RUF001  (as in a printed table; it cannot be taken for a minus before a number)
CUT = "…"
LONGEST = 512
"""Characters of a user's text: a name from a file may have any length."""

SHORTEST = 3
"""Least columns for each part of a path; with fewer, the path is cut as one text."""

_GIB, _MIB = 2**30, 2**20
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TWICE = 2


def size(amount: int | None) -> str:
    """Write bytes as Kubernetes does: "6Mi", "62.5Gi". An amount from 1 byte to 1 MiB is "1Mi"."""
    if amount is None:
        return UNKNOWN
    if abs(amount) >= _GIB:
        return f"{amount / _GIB:.1f}Gi"
    return f"{max(1, round(amount / _MIB))}Mi" if amount else "0"


def percent(ratio: float | None) -> str:
    """Write a ratio in percent."""
    return UNKNOWN if ratio is None else f"{ratio:.0%}"


def share(part: int | None, whole: int | None) -> str:
    """Write the share of `whole` in percent; a dash if either is unknown, or `whole` is 0."""
    return UNKNOWN if part is None or not whole else percent(part / whole)


def span(seconds: float) -> str:
    """Write a duration in one unit, the largest of which there are at least two."""
    left = max(0, round(seconds))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if left >= _TWICE * unit:
            return f"{left // unit}{name}"
    return f"{left}s"


def clean(text: str) -> str:
    """Escape a user's text to printable ASCII, and cut it at `LONGEST`."""
    cleaned = "".join(char if " " <= char <= "~" else ascii(char)[1:-1] for char in text[:LONGEST])
    return cleaned + (CUT if len(text) > LONGEST else "")


def middle(text: str, width: int) -> str:
    """Cut out the middle: the begin of a name shows the workload, and the end shows the instance."""
    if len(text) <= width:
        return text
    if width <= 1:
        return CUT[:width]
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + CUT + text[len(text) - tail :]


def path(text: str, width: int) -> str:
    """Cut a name such as NAMESPACE/POD/CONTAINER: each part loses its own middle, the longest part the most."""
    parts = text.split("/")
    room = width - len(parts) + 1
    if len(text) <= width or room < SHORTEST * len(parts):
        return middle(text, width)
    left, cut = room, len(parts)
    for part in sorted(parts, key=len):  # a short part stays whole; the others share the rest
        if len(part) > left // cut:
            break
        left, cut = left - len(part), cut - 1
    longest, left = divmod(left, cut)
    shortened = []
    for part in parts:
        more = left > 0 and len(part) > longest
        left -= more
        shortened.append(middle(part, longest + more))
    return "/".join(shortened)


def end(text: str, width: int) -> str:
    """Cut off the end of a text that is too long, and mark the cut."""
    return text if len(text) <= width else text[: max(0, width - 1)] + CUT[: max(0, width)]


def ascii_only(text: str) -> str:
    """Replace this module's dash and dots by ASCII characters of the same width."""
    return text.replace(UNKNOWN, "-").replace(CUT, "~")
