"""
Keys of rows with `*`, which stands for any text.

What comes in: a row's key and the keys of a pod or node. What goes out: the keys that match, and the texts that match
their stars.
"""

from collections.abc import Collection, Iterable, Mapping


def match(pattern: str, text: str) -> tuple[str, ...] | None:
    """
    Match a key with any number of `*`, each for at least one character; return the texts that match the stars.

    None if the key does not match. Earlier stars match as little as possible, the last one all the rest. So the time
    grows with the length of the text only, whatever it contains.
    """
    first, *rest = pattern.split("*")
    if not text.startswith(first):
        return None
    if not rest:
        return () if text == pattern else None
    stars, at = [], len(first)
    for piece in rest[:-1]:
        start = text.find(piece, at + 1)
        if start < 0:
            return None
        stars.append(text[at:start])
        at = start + len(piece)
    end = len(text) - len(rest[-1])
    if not text.endswith(rest[-1]) or end <= at:
        return None
    return (*stars, text[at:end])


def matching(pattern: str, texts: Collection[str]) -> list[tuple[str, tuple[str, ...]]]:
    """List, in order, the keys that match, each with the texts of its stars. A key without a star is looked up."""
    if "*" not in pattern:
        return [(pattern, ())] if pattern in texts else []
    first = pattern.partition("*")[0]
    matches = ((key, match(pattern, key)) for key in sorted(key for key in texts if key.startswith(first)))
    return [(key, stars) for key, stars in matches if stars is not None]


def labelled(patterns: Iterable[str], labels: Mapping[str, str]) -> str:
    """Find the first label that matches a pattern (`key` or `key=value`), as `key=value`; empty if none does."""
    for pattern in patterns:
        key, equals, value = pattern.partition("=")
        for label, _ in matching(key, labels):
            if not equals or labels[label] == value:
                return f"{label}={labels[label]}"
    return ""


def fill(pattern: str, stars: tuple[str, ...]) -> str:
    """Fill the stars of another key with these texts: from `baidu.com/*_cgpu_memory` to its `baidu.com/*_cgpu`."""
    for star in stars:
        pattern = pattern.replace("*", star, 1)
    return pattern
