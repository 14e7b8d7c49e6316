"""Promises of exporter/base/quantities.py: text with units becomes an exact number, or a clear error."""

import json
from contextlib import suppress
from fractions import Fraction
from math import ceil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.base.quantities import LARGEST, QuantityError, parse_bytes, parse_duration, parse_quantity

FIXTURE = Path(__file__).parent / "fixtures" / "quantities.tsv"
ROWS = [line.split("\t") for line in FIXTURE.read_text().splitlines() if not line.startswith("#")]
KUBERNETES = [(json.loads(text), value, whole) for text, value, whole in ROWS]
WITHOUT_DIGIT = {"-"}
"""Read as 0 by apimachinery's parser, and not by its documented grammar."""

SUFFIXES = {
    "": Fraction(1),
    "n": Fraction(1, 10**9),
    "u": Fraction(1, 10**6),
    "m": Fraction(1, 1000),
    "k": Fraction(1000),
    "M": Fraction(10**6),
    "G": Fraction(10**9),
    "T": Fraction(10**12),
    "P": Fraction(10**15),
    "E": Fraction(10**18),
    "Ki": Fraction(2**10),
    "Mi": Fraction(2**20),
    "Gi": Fraction(2**30),
    "Ti": Fraction(2**40),
    "Pi": Fraction(2**50),
    "Ei": Fraction(2**60),
}


@pytest.mark.parametrize(("text", "value", "whole"), KUBERNETES, ids=[repr(text) for text, _, _ in KUBERNETES])
def test_reads_what_kubernetes_reads(text: str, value: str, whole: str) -> None:
    """Each text means exactly what apimachinery makes of it, or is refused where that refuses, caps or overflows."""
    beyond = value != "-" and abs(Fraction(value)) >= LARGEST and text != str(LARGEST)
    if value == "-" or beyond or text in WITHOUT_DIGIT:
        with pytest.raises(QuantityError):
            parse_quantity(text)
        return
    assert parse_quantity(text) == Fraction(value)
    if Fraction(value) >= 0:
        assert parse_bytes(text) == int(whole)


def test_the_fixture_covers_the_grammar() -> None:
    """The list that Kubernetes was asked about has each suffix, both exponents, and texts that are refused."""
    for suffix in (*SUFFIXES, "e3", "E3", "e+3", "E-3"):
        assert any(text.endswith(suffix) and value != "-" for text, value, _ in KUBERNETES), suffix
    assert sum(value == "-" for _, value, _ in KUBERNETES) > 30


@pytest.mark.parametrize(
    ("text", "expected"),
    [("8k", 8000), ("16Gi", 16 * 2**30), ("1.5Gi", 3 * 2**29), ("500M", 500 * 10**6), ("1e3", 1000), ("0.5", 1)],
)
def test_bytes(text: str, expected: int) -> None:
    """A limit comes out in whole bytes, also as the API server rewrites it (8000 becomes 8k)."""
    assert parse_bytes(text) == expected


@given(
    sign=st.sampled_from(["", "+", "-"]),
    whole=st.text("0123456789", max_size=6),
    fraction=st.none() | st.text("0123456789", max_size=6),
    suffix=st.sampled_from(list(SUFFIXES)),
)
def test_every_documented_quantity_is_exact(sign: str, whole: str, fraction: str | None, suffix: str) -> None:
    """Sign, digits, point and suffix in every combination: the exact product, what is below a nano rounded outward."""
    text = f"{sign}{whole}{'' if fraction is None else '.' + fraction}{suffix}"
    if not whole and not fraction:
        with pytest.raises(QuantityError):
            parse_quantity(text)
        return
    digits = int(whole + (fraction or ""))
    exact = Fraction(digits, 10 ** len(fraction or "")) * SUFFIXES[suffix]
    rounded = Fraction(ceil(exact * 10**9), 10**9)
    if rounded > LARGEST:
        with pytest.raises(QuantityError, match="too large"):
            parse_quantity(text)
    else:
        assert parse_quantity(text) == (-rounded if sign == "-" else rounded)


@given(mantissa=st.integers(0, 10**6), exponent=st.integers(-30, 30), letter=st.sampled_from("eE"))
def test_exponents_are_powers_of_ten(mantissa: int, exponent: int, letter: str) -> None:
    """1E3 is a thousand, 1E is exa: the letter is an exponent exactly when a number follows."""
    exact = mantissa * Fraction(10) ** exponent
    text = f"{mantissa}{letter}{exponent}"
    if exact > LARGEST:
        with pytest.raises(QuantityError):
            parse_quantity(text)
    else:
        assert parse_quantity(text) == Fraction(ceil(exact * 10**9), 10**9)
    assert parse_quantity("1E") == 10**18


@given(st.text())
def test_any_text_is_a_number_or_a_quantity_error(text: str) -> None:
    """No text raises anything else, in any of the three parsers."""
    for parse in (parse_quantity, parse_bytes, parse_duration):
        with suppress(QuantityError):
            assert parse(text) < 2**63


@pytest.mark.parametrize(
    "text", ["9" * 5000, "1e" + "9" * 100, "1e-" + "9" * 100, "1e999999999", "0e999999999", "9" * 10**6]
)
def test_a_huge_number_costs_nothing(text: str) -> None:
    """No number of digits and no exponent makes more than an error, the finest step, or nothing."""
    message, value = "", Fraction(0)
    try:
        value = parse_quantity(text)
    except QuantityError as error:
        message = str(error)
    assert value in {0, Fraction(1, 10**9)}
    assert len(message) < 300


@pytest.mark.parametrize("text", ["10E", "8Ei", "1e30", "9223372036854775808"])
def test_what_kubernetes_would_cap_or_overflow_is_refused(text: str) -> None:
    """A limit above 2^63 - 1 is a user's mistake: it is an error, and does not become another number."""
    with pytest.raises(QuantityError, match=text):
        parse_bytes(text)


def test_negative_sizes_are_refused() -> None:
    """A size is never negative; a quantity may be."""
    assert parse_quantity("-2Gi") == -(2**31)
    with pytest.raises(QuantityError, match=r"'-2Gi' is negative: expected a size such as \"16Gi\""):
        parse_bytes("-2Gi")


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_bytes, "16 GB", '\'16 GB\' is not a quantity: expected a number such as "16Gi", "500M", "8k" or "1e9"'),
        (parse_duration, "5 sec", '\'5 sec\' is not a duration: expected something such as "5s", "500ms" or "1h30m"'),
        (parse_duration, "5", '\'5\' is not a duration: expected something such as "5s", "500ms" or "1h30m"'),
        (parse_bytes, "1\n\u0661", "'1\\n\\u0661' is not a quantity"),
    ],
)
def test_errors_quote_the_text_and_say_what_was_expected(parse: type, text: str, message: str) -> None:
    """A person can correct the file with nothing but the message; control characters cannot forge a log line."""
    with pytest.raises(QuantityError) as caught:
        parse(text)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("5s", 5.0),
        ("500ms", 0.5),
        ("2m", 120.0),
        ("1h30m", 5400.0),
        ("1.5h", 5400.0),
        (".5s", 0.5),
        ("1m30s", 90.0),
        ("100us", 0.0001),
        ("100\u00b5s", 0.0001),
        ("100\u03bcs", 0.0001),
        ("0", 0.0),
        ("0s", 0.0),
        ("0.1s200ms", 0.3),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    """Durations are written as in Go, and come out as the nearest float: 0.1s200ms is 0.3, not 0.30000000000000004."""
    assert parse_duration(text) == seconds


@pytest.mark.parametrize(
    "text", ["", "s", "5", "-5s", "+5s", "5d", "5S", "5s ", "1h 30m", "1e3s", ".s", "1s5", "300000000h", "0s" * 65]
)
def test_refused_durations(text: str) -> None:
    """A number without unit, a sign, a day, a space, an exponent: not guessed at."""
    with pytest.raises(QuantityError):
        parse_duration(text)


@given(
    st.lists(
        st.tuples(st.integers(0, 10**4), st.sampled_from(["h", "m", "s", "ms", "us", "ns"])), min_size=1, max_size=5
    )
)
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    """Parts may come in any order and repeat."""
    units = {"h": 3600 * 10**9, "m": 60 * 10**9, "s": 10**9, "ms": 10**6, "us": 10**3, "ns": 1}
    nanoseconds = sum(number * units[unit] for number, unit in parts)
    assert parse_duration("".join(f"{number}{unit}" for number, unit in parts)) == nanoseconds / 10**9
