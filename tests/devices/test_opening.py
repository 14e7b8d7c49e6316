"""A library's initialisation: once, and after a failure ever less often."""

from itertools import pairwise

import pytest

from exporter.devices.opening import RETRY_FIRST, RETRY_MOST, Opening


class RefusedError(Exception):
    """A library that cannot be initialised."""


class Library:
    """Refuses to start while `away`; counts how often it was asked. `now` is in seconds."""

    def __init__(self) -> None:
        self.away = False
        self.asked = 0
        self.now = 0.0
        self.opening = Opening(self.start, RefusedError, lambda: self.now)

    def start(self) -> str:
        self.asked += 1
        if self.away:
            raise RefusedError(str(self.asked))
        return f"version {self.asked}"


def test_it_is_initialised_once_until_it_is_closed() -> None:
    """Every caller gets the result of the first attempt; after the library was closed, a new attempt is made."""
    library = Library()

    assert [library.opening.open(), library.opening.open()] == ["version 1", "version 1"]
    assert [library.opening.close(), library.opening.close()] == [True, False]
    assert library.opening.open() == "version 2"


def test_a_failure_is_tried_again_ever_less_often() -> None:
    """The same failure, untried, until it is time; the pause doubles up to a minute, and begins anew after success."""
    library = Library()
    library.away = True
    attempts = [0.0]
    with pytest.raises(RefusedError):
        library.opening.open()
    while len(attempts) < 9:
        library.now += 0.5
        with pytest.raises(RefusedError) as refused:
            library.opening.open()
        assert str(refused.value) == str(library.asked)
        if library.asked > len(attempts):
            attempts.append(library.now)
    pauses = [later - earlier for earlier, later in pairwise(attempts)]
    assert pauses == [RETRY_FIRST, 2, 4, 8, 16, 32, RETRY_MOST, RETRY_MOST]

    library.away, library.now = False, library.now + RETRY_MOST
    library.opening.open()
    library.opening.close()
    library.away = True
    for _ in range(2):
        library.now += RETRY_FIRST
        with pytest.raises(RefusedError, match=f"^{library.asked + 1}$"):
            library.opening.open()


def test_what_is_no_failure_of_the_library_is_not_kept() -> None:
    """An exception of another kind is raised as it is, and the next call tries again at once."""
    library = Library()
    library.away = True
    opening = Opening(library.start, KeyError, lambda: 0.0)

    for attempt in (1, 2):
        with pytest.raises(RefusedError, match=f"^{attempt}$"):
            opening.open()
