"""
Figures and names for a terminal.

What comes in: numbers of the document, None where they are unknown, and names that other people chose. What goes out:
short text of one column a character.

The law: unknown is a dash, never 0. What is not printable ASCII leaves here as its number: it cannot move the cursor,
change a colour, turn the writing direction, or take two columns where one was counted. Kubernetes' own names are ASCII.
"""

UNKNOWN = "–"  # noqa: RUF001  (as in a printed table; it cannot be taken for a minus before a number)
CUT = "…"
LONGEST = 512
"""Characters of a foreign text: a name of a file-fed source may have any length."""

SHORTEST = 3
"""Columns that a part of a path keeps; where there are fewer, the path is cut as one."""

_GIB, _MIB = 2**30, 2**20
_MINUTE, _HOUR, _DAY = 60, 3600, 86400
_TWICE = 2


def size(amount: int | None) -> str:
    """Write bytes as Kubernetes writes them: "6Mi", "62.5Gi". What is less than one MiB, and not nothing, is one."""
    if amount is None:
        return UNKNOWN
    if abs(amount) >= _GIB:
        return f"{amount / _GIB:.1f}Gi"
    return f"{max(1, round(amount / _MIB))}Mi" if amount else "0"


def percent(ratio: float | None) -> str:
    """Write a ratio."""
    return UNKNOWN if ratio is None else f"{ratio:.0%}"


def share(part: int | None, whole: int | None) -> str:
    """Write how much of `whole` this is; of nothing there is no share."""
    return UNKNOWN if part is None or not whole else percent(part / whole)


def span(seconds: float) -> str:
    """Write a duration in one unit, in the next one from two of it on."""
    left = max(0, round(seconds))
    for unit, name in ((_DAY, "d"), (_HOUR, "h"), (_MINUTE, "m")):
        if left >= _TWICE * unit:
            return f"{left // unit}{name}"
    return f"{left}s"


def clean(text: str) -> str:
    """Take the power out of a foreign text."""
    cleaned = "".join(char if " " <= char <= "~" else ascii(char)[1:-1] for char in text[:LONGEST])
    return cleaned + (CUT if len(text) > LONGEST else "")


def middle(text: str, width: int) -> str:
    """Cut the middle out: how a name begins says whose it is, and how it ends, which one."""
    if len(text) <= width:
        return text
    if width <= 1:
        return CUT[:width]
    tail = (width - 1) // 2
    return text[: width - 1 - tail] + CUT + text[len(text) - tail :]


def path(text: str, width: int) -> str:
    """Cut a name such as NAMESPACE/POD/CONTAINER: each part loses its own middle, and the longest the most."""
    parts = text.split("/")
    room = width - len(parts) + 1
    if len(text) <= width or room < SHORTEST * len(parts):
        return middle(text, width)
    left, cut = room, len(parts)
    for part in sorted(parts, key=len):  # what is short enough stays whole; the others share what is left
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
    """Cut the end off."""
    return text if len(text) <= width else text[: max(0, width - 1)] + CUT[: max(0, width)]


def ascii_only(text: str) -> str:
    """Write what was written here for a terminal that knows ASCII alone, in as many columns."""
    return text.replace(UNKNOWN, "-").replace(CUT, "~")
