"""
Numbers with units, as people and Kubernetes write them; the only place where units are converted.

What comes in: text ("16Gi", "8k", "500m", "1e3", "1h30m"). What goes out: an exact number, or `QuantityError`, whose
message quotes the text and says what was expected.

The rule: exact or refused. No float is used between a declared limit and its bytes, and a number out of range is an
error. Kubernetes' own `Quantity.Value()` turns "1e300" into 0, and "10E" into a negative number. The grammar of
quantities is the documented one of apimachinery's `resource.Quantity`. Its parser accepts more than its documentation,
and this one does not. A number needs a digit (that parser reads ".", "+" and "Ki" as 0), and must not exceed 2^63 - 1.
"""

import re
from fractions import Fraction
from math import ceil

LARGEST = 2**63 - 1
"""The largest quantity, in magnitude; also the documented maximum of Kubernetes."""

_NANO = 10**9
"""The finest step. Kubernetes rounds finer values away from zero, so that a tiny request does not become 0."""
_LONGEST = 128
"""
Characters of a text.

No number without an exponent is then larger than 10^128, so that no text exhausts the daemon.
"""
_BEYOND = 300
"""A decimal exponent that decides alone, whatever the 128 characters are: too large, or the finest step."""

_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)(?P<number>[0-9]+\.?[0-9]*|\.[0-9]+)(?:(?P<suffix>[numkMGTPE]|[KMGTPE]i)|[eE](?P<exponent>[+-]?[0-9]+))?"
)
_FACTORS = {
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 10**3),
    "k": Fraction(10**3),
    **{letter: Fraction(1000**power) for power, letter in enumerate("MGTPE", 2)},
    **{f"{letter}i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)},
}

_UNITS = {
    "ns": Fraction(1, 10**9),
    "us": Fraction(1, 10**6),
    "\N{MICRO SIGN}s": Fraction(1, 10**6),
    "\N{GREEK SMALL LETTER MU}s": Fraction(1, 10**6),
    "ms": Fraction(1, 10**3),
    "s": Fraction(1),
    "m": Fraction(60),
    "h": Fraction(3600),
}
_PART = r"([0-9]+\.?[0-9]*|\.[0-9]+)(ns|us|\N{MICRO SIGN}s|\N{GREEK SMALL LETTER MU}s|ms|s|m|h)"
_DURATION = re.compile(rf"(?:{_PART})+")
_PARTS = re.compile(_PART)


class QuantityError(ValueError):
    """The text is not a quantity or duration; the message says what was expected and what was found."""


def parse_quantity(text: str) -> Fraction:
    """
    Parse a Kubernetes quantity ("1.5Gi", "500m", "-2", "1E3" = 1000, "1E" = 10^18) into an exact number.

    A value finer than 10^-9 is rounded away from zero, as Kubernetes does. Raises QuantityError.
    """
    match = _QUANTITY.fullmatch(text) if len(text) <= _LONGEST else None
    if match is None:
        raise QuantityError(
            f'{_quoted(text)} is not a quantity: expected a number such as "16Gi", "500M", "8k" or "1e9"'
        )
    exact = Fraction(match["number"]) * _factor(match["suffix"], match["exponent"])
    value = Fraction(ceil(exact * _NANO), _NANO)
    if value > LARGEST:
        raise QuantityError(f"{_quoted(text)} is too large: expected at most 2^63 - 1 (8Ei - 1)")
    return -value if match["sign"] == "-" else value


def parse_bytes(text: str) -> int:
    """Parse a quantity of bytes: not negative, a fraction of a byte rounded up ("0.5" is 1). Raises QuantityError."""
    value = parse_quantity(text)
    if value < 0:
        raise QuantityError(f'{_quoted(text)} is negative: expected a size such as "16Gi" or "500M"')
    return ceil(value)


def parse_duration(text: str) -> float:
    """
    Parse a duration ("5s", "500ms", "1h30m", "1.5h", "0") into seconds. Raises QuantityError.

    The grammar is that of Go's `time.ParseDuration`, without a sign; the longest is 2^63 - 1 nanoseconds.
    """
    if text == "0":
        return 0.0
    if len(text) > _LONGEST or not _DURATION.fullmatch(text):
        raise QuantityError(f'{_quoted(text)} is not a duration: expected something such as "5s", "500ms" or "1h30m"')
    exact = sum(Fraction(number) * _UNITS[unit] for number, unit in _PARTS.findall(text))
    if exact * _NANO > LARGEST:
        raise QuantityError(f"{_quoted(text)} is too long: expected less than 292 years")
    return float(exact)


def _factor(suffix: str | None, exponent: str | None) -> Fraction:
    if suffix is not None:
        return _FACTORS[suffix]
    return Fraction(10) ** max(-_BEYOND, min(_BEYOND, int(exponent or 0)))


def _quoted(text: str) -> str:
    return ascii(text) if len(text) <= _LONGEST else f"{text[:_LONGEST]!a}..."
