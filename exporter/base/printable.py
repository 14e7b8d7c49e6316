"""
Text of others for a terminal.

What comes in: names and messages that a cluster, a file or a server chose. What goes out: the same text, with escapes
for the characters that a terminal would obey or not show.

The rule: letters of all languages stay. Line ends are escaped, too: text of several lines is given line by line.
"""


def printable(text: str) -> str:
    """Escape the characters that are not printable."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
