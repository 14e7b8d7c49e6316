"""Promises of exporter/metrics/scrapes.py: a regular scraper is expected, and no round meets it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.metrics.scrapes import AFTER, ASKED_WITHIN, BEFORE, Scrapes

ROUND = 0.01
"""Seconds that a round and its page keep Python busy."""
ANSWER = 0.002


def regular(scrapes: Scrapes[str], gap: float, until: float, *, asked: str = "text", offset: float = 0.0) -> None:
    """Scrape at multiples of `gap`, up to that time."""
    for number in range(int((until - offset) / gap) + 1):
        scrapes.came(asked, offset + number * gap)


@given(
    gap=st.floats(1.0, 60.0),
    late=st.lists(st.floats(0.0, 0.001), min_size=5, max_size=5),
    before=st.floats(0.0, 0.05),
)
def test_no_round_meets_the_scrape_of_a_regular_scraper(gap: float, late: list[float], before: float) -> None:
    """Whenever shortly before it a round would begin, and though each scrape comes up to a millisecond late."""
    scrapes = Scrapes[str]()
    times = [1000 + number * gap + more for number, more in enumerate(late)]
    for at in times[:-1]:
        scrapes.came("text", at)
    now = times[-1] - before
    wait = scrapes.wait(now)
    assert 0 <= wait <= BEFORE + AFTER
    begins = now + wait
    assert begins + ROUND <= times[-1] or begins >= times[-1] + ANSWER


def test_rounds_far_from_a_scrape_do_not_wait() -> None:
    """Of a second with one scrape, a round waits in 25 ms."""
    scrapes = Scrapes[str]()
    regular(scrapes, 1.0, 10.0)
    waiting = [ms for ms in range(1000) if scrapes.wait(10.0005 + ms / 1000) > 0]
    assert waiting == list(range(980, 1000)), "and in the 5 ms after the expected time, of a scrape that is late"
    assert scrapes.wait(11.004) == pytest.approx(0.001)
    assert scrapes.wait(11.006) == 0


@pytest.mark.parametrize("gap", [0.0, 0.025, 0.4])
def test_no_round_waits_for_a_scraper_without_a_break(gap: float) -> None:
    """A tenant with many requests a second cannot choose the moments of the rounds; a page is still rendered ahead."""
    scrapes = Scrapes[str]()
    for number in range(100):
        scrapes.came("text", 10 + number * gap)
    last = 10 + 99 * gap
    assert {scrapes.wait(last + ms / 1000) for ms in range(1000)} == {0}
    assert scrapes.wanted(last, 1.0) == ["text"]


def test_two_scrapers_that_take_turns_are_both_expected() -> None:
    """Two Prometheus servers of one interval: the gaps alternate, and each is known from the one before the last."""
    scrapes = Scrapes[str]()
    for at in (0.0, 10.0, 15.0, 25.0, 30.0):
        scrapes.came("text", at)
    assert scrapes.wait(39.99) == pytest.approx(0.015)
    assert scrapes.wait(34.99) == 0, "five seconds after the last, no scraper comes"
    assert scrapes.wanted(35.0, 5.0) == ["text"]
    assert scrapes.wanted(35.0, 4.0) == []


def test_scrapers_of_two_formats_are_both_expected() -> None:
    """The round waits for the later one, if both are near."""
    scrapes = Scrapes[str]()
    regular(scrapes, 1.0, 10.5)
    regular(scrapes, 1.0, 10.5, asked="OpenMetrics", offset=0.01)
    assert scrapes.wait(10.992) == pytest.approx(0.018 + AFTER)
    assert scrapes.wanted(10.5, 0.505) == ["text"]
    assert scrapes.wanted(10.5, 0.6) == ["text", "OpenMetrics"]


@pytest.mark.parametrize("times", [[], [5.0], [5.0, 6.0]], ids=["no scraper", "one look", "gone for good"])
def test_no_scraper_is_expected(times: list[float]) -> None:
    """No page is rendered ahead for a scraper that does not come, and no round waits for it."""
    scrapes = Scrapes[str]()
    for at in times:
        scrapes.came("text", at)
    now = 6.0 + ASKED_WITHIN + 1
    assert (scrapes.wait(now), scrapes.wanted(now, 1000.0)) == (0, [])
