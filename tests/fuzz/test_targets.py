"""Hostile inputs, a short run: each promise of the fuzz targets holds, and each target notices when it does not."""

import random
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import islice
from typing import Any

import pytest

from exporter.base.cgroup_owner import PodCgroups
from exporter.limits.decoding import Amount, Asked, DeclarationError
from exporter.model import Owner
from fuzz import work
from fuzz.mutating import mutated, words_of
from fuzz.targets import LONGEST, SHARES, check_of, kept, words
from pace import quick

NAMES = tuple(SHARES)
INPUTS, COUNTED = (50, 6) if quick() else (150, 25)
"""Inputs of each target in this run, and those of which the work is counted. `make fuzz` takes ten million."""
WORK = {
    "cgroup_lines": (3_000, 60),
    "quantities": (2_500, 30),
    "annotations": (40_000, 300),
    "pod_resources": (20_000, 150),
    "http_requests": (20_000, 60),
    "web_config": (20_000, 200),
    "journal": (40_000, 300),
    "recording": (120_000, 2_000),
}
"""Lines of Python that an input may cost at most: so many, and so many more for each of its bytes."""
MEMORY = 20 << 20
"""Bytes that an input may hold at most. To read a journal 16 MiB are set aside, whatever its length."""


def some(name: str, count: int = INPUTS) -> list[bytes]:
    """What is in the tree, and as many inputs made of it; the same each time."""
    inputs = [path.read_bytes() for path in kept(name)]
    made = mutated(inputs, words_of(words(name).read_text()), seed=1, longest=LONGEST.get(name, 1024))
    return [*inputs, *islice(made, count)]


def test_the_parts_are_a_whole() -> None:
    """A campaign of ten million has ten million, and each target begins with inputs of its format."""
    assert sum(SHARES.values()) == 100
    assert all(kept(name) for name in NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_promises_hold(name: str) -> None:
    """Seeds, findings, and inputs made of both."""
    _kept_are_checked(name)
    check = check_of(name)
    for data in some(name)[len(kept(name)) :]:
        check(data)


@pytest.mark.parametrize("name", NAMES)
def test_work_is_bounded_by_the_length(name: str) -> None:
    """No input costs more lines of Python than its length allows, nor more memory than a few MB."""
    _kept_are_checked(name)  # what is made once is made
    check = check_of(name)
    some_of = random.Random(1).sample(some(name, 40), COUNTED)
    base, each = WORK[name]
    for data in some_of:
        ran = work.lines(check, data)
        assert ran <= base + each * len(data), (ran, len(data), data)
        assert work.peak(check, data) <= MEMORY


@cache
def _kept_are_checked(name: str) -> None:
    """Check what is in the tree, once for two tests."""
    check = check_of(name)
    for data in (b"", *some(name, 0)):
        check(data)


# --- each target notices a broken promise ---------------------------------------------------------------------------


def _broken(name: str) -> None:
    with pytest.raises(AssertionError):
        _checked(name)


def _checked(name: str) -> None:
    check = check_of(name)
    for data in some(name):
        check(data)


def _patched(monkeypatch: pytest.MonkeyPatch, place: str, change: Callable[[Any], Any]) -> None:
    """Break a function of the program, where the target calls it."""
    module, _, name = place.rpartition(".")
    target = __import__(module, fromlist=[name])
    monkeypatch.setattr(target, name, change(getattr(target, name)))


def _other_pod(owner: Callable[..., Owner]) -> Callable[..., Owner]:
    return lambda pods, text: owner(pods, text.replace("/user.slice", ""))


def test_a_cgroup_of_a_user_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that believes a folder below `user.slice`."""
    monkeypatch.setattr(PodCgroups, "owner", _other_pod(PodCgroups.owner))
    _broken("cgroup_lines")


@pytest.mark.parametrize(
    ("name", "place", "change"),
    [
        ("quantities", "fuzz.quantities.parse_quantity", lambda parse: lambda text: parse(text) + 1),
        ("quantities", "fuzz.quantities.parse_bytes", lambda parse: lambda text: int(float(parse(text)))),
        ("annotations", "fuzz.annotations.decode", lambda decode: lambda *given: _doubled(decode(*given))),
        ("annotations", "exporter.limits.terms.decode", lambda _: _refused),
        ("pod_resources", "fuzz.pod_resources._view", lambda view: lambda *of: replace(view(*of), pods=frozenset())),
        ("pod_resources", "fuzz.pod_resources.succeed", lambda _: lambda _before, fresh, **_how: fresh),
        ("http_requests", "exporter.web.app.HEADERS", lambda headers: {**headers, "X-Frame-Options": "all"}),
        ("http_requests", "exporter.web.gate.PROBES", lambda probes: probes | {"/metrics"}),
        ("web_config", "fuzz.web_config.parse_web_config", lambda parse: lambda *given: _without_users(parse(*given))),
        ("journal", "fuzz.journal.replayed", lambda read: lambda *of, **how: _undamaged(read(*of, **how))),
        ("recording", "exporter.recording.reader.FORMAT", lambda _: 0),
        ("recording", "exporter.recording.reader.impossible", lambda _: lambda _line: ""),
    ],
)  # fmt: skip
def test_a_broken_promise_is_noticed(
    monkeypatch: pytest.MonkeyPatch, name: str, place: str, change: Callable[[Any], Any]
) -> None:
    """A program that is wrong in one place does not pass a target: an oracle that nothing fails is none."""
    check_of(name)  # a target that is imported later would take what is wrong for right
    _patched(monkeypatch, place, change)
    _broken(name)


def _doubled(amounts: tuple[Amount, ...]) -> tuple[Amount, ...]:
    return tuple(replace(one, value=None if one.value is None else one.value * 2 + 1) for one in amounts)


def _refused(_text: str, _asked: Asked) -> tuple[Amount, ...]:
    raise DeclarationError("broken")


def _without_users(written: Any) -> Any:
    import msgspec

    return msgspec.structs.replace(written, basic_auth_users={})


def _undamaged(reading: Any) -> Any:
    return replace(reading, damaged=False, kept=replace(reading.kept, open={}))
