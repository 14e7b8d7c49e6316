"""The parts of the lab that need no GPU: duty cycles, orders, the page."""

from __future__ import annotations

import os
import re
import threading

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu.cuda import SPIN
from gpu.duty import PERIOD_NS, Done, Duty
from gpu.lab import leader
from gpu.protocol import Answer, Do, Order, answer, line, order
from gpu.table import Row, Verdict, held, not_here, rendered, within


@given(st.floats(0, 1), st.integers(0, 3 * PERIOD_NS))
def test_burst_and_rest_fill_a_period(share: float, late: int) -> None:
    """Busy for the share of a period, then rest until its end; a late burst rests less, and never a negative time."""
    duty = Duty(share)
    assert abs(duty.burst_ns - share * PERIOD_NS) <= 1
    assert duty.burst_ns + duty.rest_ns(duty.burst_ns) == PERIOD_NS
    assert 0 <= duty.rest_ns(late) <= PERIOD_NS


@pytest.mark.parametrize("share", [-0.1, 1.1, float("nan")])
def test_a_share_is_a_ratio(share: float) -> None:
    """A duty of 110 % is a mistake of its caller."""
    with pytest.raises(ValueError, match="between 0 and 1"):
        Duty(share)


def test_what_was_reached_is_told() -> None:
    """The share of all bursts in all the time that they took; none where no time has passed."""
    assert Done().share is None
    assert Done().with_burst(30, 100).with_burst(10, 100).share == 0.2


@given(st.sampled_from(Do), st.integers(0, 2**60), st.floats(0, 1), st.integers(0, 1000), st.floats(0, 1e6))
def test_an_order_comes_as_it_was_given(do: Do, size: int, share: float, blocks: int, seconds: float) -> None:
    """One line, whatever is in it."""
    given_ = Order(do, size, share, blocks, seconds)
    assert line(given_).count("\n") == 1
    assert order(line(given_)) == given_


@given(st.builds(Answer, st.integers(0), st.none() | st.floats(0, 1), problem=st.text()))
def test_an_answer_comes_as_it_was_given(given_: Answer) -> None:
    """Also a problem of several lines."""
    assert line(given_).count("\n") == 1
    assert answer(line(given_)) == given_


@pytest.mark.parametrize("text", ["", "{}", '{"do": "dance"}', '{"do": "allocate", "size": "much"}', "[1]"])
def test_what_is_no_order_is_refused(text: str) -> None:
    """A tenant answers such a line with a problem; it does not guess."""
    with pytest.raises(msgspec.DecodeError):
        order(text)


def test_a_figure_is_compared_with_what_was_expected() -> None:
    """Within the tolerance, beyond it, and not there at all."""
    assert within("x", 0.5, 0.55, 0.1).verdict is Verdict.AS_EXPECTED
    assert within("x", 0.5, 0.65, 0.1).verdict is Verdict.DIFFERS
    assert within("x", 0.5, None, 0.1) == Row("x", "0.5 ± 0.1", "none", Verdict.DIFFERS)
    assert within("x", 1024, 1026, 4, " MiB") == Row("x", "1024 MiB ± 4 MiB", "1026 MiB", Verdict.AS_EXPECTED)
    assert held("x", "lives", "lives", good=True).verdict is Verdict.AS_EXPECTED
    assert held("x", "lives", "died", good=False).verdict is Verdict.DIFFERS


def test_the_page_is_a_table_whatever_stands_in_it() -> None:
    """Expected before measured; a driver's words with bars or line ends break no row."""
    rows = [Row("one | two", "a", "b\nc"), not_here("MPS", "no | program")]
    page = rendered([("GPU", "NVIDIA X"), ("driver", "1.2")], rows, [["n", "us"], ["1", "20"]], fake=False)
    assert page.startswith("### measured on NVIDIA X\n")
    assert "| one \\| two | a | b c | a fact |" in page
    assert "| MPS |  | no \\| program | not here |" in page
    for table in re.findall(r"(?:^\|.*\n)+", page, re.MULTILINE):
        columns = {len(re.findall(r"(?<!\\)\|", row)) for row in table.splitlines()}
        assert len(columns) == 1, table
    assert "fake" not in page.lower()


def test_what_was_played_is_called_fake_everywhere() -> None:
    """No reader can take a stand-in's answer for a GPU's, not even in a row that was copied."""
    page = rendered([("GPU", "NVIDIA X")], [Row("x", "y", "z"), not_here("MPS", "no")], [], fake=True)
    assert page.startswith("### FAKE, no GPU: measured on NVIDIA X\n")
    rows = [row for row in page.splitlines() if row.startswith("| ") and "---" not in row][1:]
    assert len(rows) == 2 and all("| fake, " in row for row in rows)


def test_a_thread_leads_to_its_process() -> None:
    """Some drivers print the number of a thread: the kernel knows its process; for a free number there is none."""
    seen: list[tuple[int, int | None]] = []
    thread = threading.Thread(
        target=lambda: seen.append((threading.get_native_id(), leader(threading.get_native_id())))
    )
    thread.start()
    thread.join()
    ((number, found),) = seen
    assert number != os.getpid() == found
    assert leader(2**22 + 1) is None


def test_the_kernel_is_ptx_that_every_gpu_takes() -> None:
    """One entry, called `spin`, with one parameter; the oldest target that drivers still compile for."""
    assert re.findall(r"\.entry (\w+)\(\.param \.u64 (\w+)\)", SPIN) == [("spin", "nanoseconds")]
    assert ".target sm_50" in SPIN and SPIN.isascii()
