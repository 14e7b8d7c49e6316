"""
Inputs made from others, without a guide: for the short run of the tests.

What comes in: inputs, words of the format, a number to begin with. What goes out: inputs without end, the same each
time.
"""

from collections.abc import Iterator, Sequence
from random import Random


def mutated(inputs: Sequence[bytes], words: Sequence[bytes], seed: int, longest: int) -> Iterator[bytes]:
    """Yield changed inputs: a part lost, doubled, exchanged, or replaced by a word, another input or other bytes."""
    random = Random(seed)
    while True:
        data = random.choice(inputs)
        for _ in range(random.randint(1, 4)):
            data = _changed(data, inputs, words, random)[:longest]
        yield data


def _changed(data: bytes, inputs: Sequence[bytes], words: Sequence[bytes], random: Random) -> bytes:
    begin = random.randint(0, len(data))
    end = random.randint(begin, min(len(data), begin + random.choice((0, 1, 8, 64))))
    other = random.choice(inputs)
    at = random.randint(0, len(other))
    new = random.choice(
        (b"", random.randbytes(1), random.randbytes(3), random.choice(words), other[at : at + 32], data[begin:end] * 2)
    )
    return data[:begin] + new + data[end:]


def words_of(text: str) -> list[bytes]:
    r"""Read a file of libFuzzer's words: one in quotes a line, with `\xAB`, `\\` and `\"`."""
    lines = (line.strip() for line in text.splitlines())
    return [
        line[1:-1].encode("latin-1").decode("unicode_escape").encode("latin-1") for line in lines if line[:1] == '"'
    ]
