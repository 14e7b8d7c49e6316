"""
Fuzz target: quantities and durations, as users write them into pods, and operators into the config.

In: a text. The promise: each of the three parsers returns what a second one computes, with integers alone and letter
by letter, or refuses where that does. A refusal is a `QuantityError` of one printable line. A size is never negative
and at most 2^63 - 1. A value, written again, is the same value.
"""

from collections.abc import Callable
from fractions import Fraction
from typing import TypeVar

from exporter.base.quantities import LARGEST, QuantityError, parse_bytes, parse_duration, parse_quantity
from fuzz.drawing import Draw

NANO = 10**9
LONGEST = 128
MESSAGE = 1600
"""Characters: 128 of the text, each written as up to ten."""
_DECIMAL = {"n": -9, "u": -6, "m": -3, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {letter: 10 * power for power, letter in enumerate("KMGTPE", 1)}
_NANOSECONDS = {
    "ns": 1,
    "us": 10**3,
    "µs": 10**3,
    "μs": 10**3,
    "ms": 10**6,
    "s": NANO,
    "m": 60 * NANO,
    "h": 3600 * NANO,
}
_DIGITS = "0123456789"
_BEYOND = 1000

T = TypeVar("T")


def check(data: bytes) -> None:
    """Compare each parser with the reference."""
    text = Draw(data).line()
    value, size, seconds = read(parse_quantity, text), read(parse_bytes, text), read(parse_duration, text)
    assert value == quantity(text), (value, quantity(text))
    assert seconds == duration(text), (seconds, duration(text))
    if value is None:
        assert size is None
        return
    assert abs(value) <= LARGEST
    assert (value * NANO).denominator == 1, "finer than a nano"
    assert parse_quantity(f"{int(value * NANO)}n") == value, "written again, another value"
    assert (size is None) == (value < 0), "a negative size, or a refused one"
    if size is not None:
        assert isinstance(size, int)
        assert 0 <= size - value < 1
        assert parse_bytes(str(size)) == size


def read(parse: Callable[[str], T], text: str) -> T | None:
    """Parse; None for a refusal, whose message is looked at."""
    try:
        return parse(text)
    except QuantityError as error:
        assert str(error).isprintable(), "a refusal of more than one line"
        assert 0 < len(str(error)) < MESSAGE, "a refusal that repeats too much"
        return None


def quantity(text: str) -> Fraction | None:
    """Compute a quantity with integers."""
    if len(text) > LONGEST:
        return None
    sign = -1 if text[:1] == "-" else 1
    number = _number(text[1:] if text[:1] in ("+", "-") else text)
    if number is None:
        return None
    digits, places, rest = number
    power = _power(rest)
    if power is None:
        return None
    two, ten = power
    ten -= places
    above, below = digits * 2**two * 10 ** max(ten, 0) * NANO, 10 ** max(-ten, 0)
    nanos = -(-above // below)
    return None if nanos > LARGEST * NANO else Fraction(sign * nanos, NANO)


def duration(text: str) -> float | None:
    """Compute a duration with integers."""
    if text == "0":
        return 0.0
    if not text or len(text) > LONGEST:
        return None
    total = Fraction(0)
    while text:
        number = _number(text)
        if number is None:
            return None
        digits, places, text = number
        unit = next((unit for unit in ("ns", "us", "µs", "μs", "ms", "s", "m", "h") if text.startswith(unit)), None)
        if unit is None:
            return None
        total += Fraction(digits * _NANOSECONDS[unit], 10**places)
        text = text[len(unit) :]
    return None if total > LARGEST else float(total / NANO)


def _number(text: str) -> tuple[int, int, str] | None:
    """Read digits with at most one point: their number without it, the places behind it, and the rest of the text."""
    whole = _leading(text)
    rest = text[len(whole) :]
    part = _leading(rest[1:]) if rest[:1] == "." else ""
    rest = rest[len(part) + 1 :] if rest[:1] == "." else rest
    return (int(whole + part), len(part), rest) if whole + part else None


def _leading(text: str) -> str:
    return text[: next((place for place, letter in enumerate(text) if letter not in _DIGITS), len(text))]


def _power(suffix: str) -> tuple[int, int] | None:
    """Read a suffix as powers of two and of ten."""
    if suffix == "" or suffix in _DECIMAL:
        return 0, _DECIMAL.get(suffix, 0)
    if suffix[1:] == "i" and suffix[0] in _BINARY:
        return _BINARY[suffix[0]], 0
    if suffix[0] not in "eE":
        return None
    negative, rest = suffix[1:2] == "-", suffix[1:].removeprefix("-" if suffix[1:2] == "-" else "+")
    if not rest or _leading(rest) != rest:
        return None
    return 0, max(-_BEYOND, min(_BEYOND, -int(rest) if negative else int(rest)))
