"""The table in lines: no line is too wide, no figure is cut, and nothing foreign reaches a terminal."""

from __future__ import annotations

import io
import re
import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from builders import GIB, device, fault, gpu, leaf, limit, memory, pod, snapshot, usage
from exporter.top.drawing import Screen, painted
from exporter.top.figures import CUT, UNKNOWN
from exporter.top.layout import Line, cropped, encodable, lines, text
from exporter.top.rows import Row, Tone
from exporter.top.table import Table, waiting
from serving.node import busy
from serving.table import shown

DRAWN = Path(__file__).with_name("busy.txt")
WIDTHS = (60, 80, 160)
PRINTABLE = re.compile(f"[ -~{UNKNOWN}{CUT}]*")
HOSTILE = (
    "\x1b[2J\x1b[H",
    "\x1b]0;title\x07",
    "\x9b31m",
    "\u202etxt.exe",
    "名前名前",
    "[bold red]x[/]",
    ":boom:",
    "a\nb\tc\r",
    "\x7f",
)


def crowded(count: int = 200) -> Table:
    """Show so many containers, of names and sizes of all lengths, on two GPUs."""
    pods = [pod(f"trainer-{'x' * (number % 50)}-{number}", f"team-{number % 7}") for number in range(count)]
    return shown(
        snapshot(
            *(device(gpu(index, memory=memory(used=70 * GIB)), attributed=70 * GIB) for index in range(2)),
            usages=[usage(one, leaf(number % 2), number * GIB // 9) for number, one in enumerate(pods)],
            pods=pods,
            limits=[limit(one, leaf(number % 2), (number + 1) * GIB // 8) for number, one in enumerate(pods)],
        )
    )


def written(found: Table, width: int | None) -> list[str]:
    return text(lines(found, width)).splitlines()


def test_the_table_of_a_busy_node() -> None:
    """
    As a person gets it on a terminal of 80 columns.

    busy.txt is what this test found, read by a person: `serving.node.busy()` with its unknowns, MIG, and a lost GPU.
    """
    assert "".join(f"{line}\n" for line in written(shown(busy()), 80)) == DRAWN.read_text(encoding="utf-8")


@pytest.mark.parametrize("width", WIDTHS)
def test_no_line_is_wider_and_no_figure_is_cut(width: int) -> None:
    """Two hundred containers: each has its line, with all of its figures; what gives way are the names."""
    found = crowded()
    laid_out = written(found, width)
    assert max(map(len, laid_out)) <= width
    assert len(laid_out) == len(found.rows) + 2
    for row, line in zip(found.rows, laid_out[2:], strict=True):
        figures = [figure for figure in (row.used, row.limit, row.share, row.sm) if figure]
        assert re.search(r"\s+".join(map(re.escape, figures)), line), line
        assert row.notes == () or row.notes[0] in line


def test_columns_stand_under_their_heads() -> None:
    """Figures are aligned to the right, below their head."""
    _, head, *rest = written(crowded(), 80)
    for line in rest:
        for name in ("USED", "LIMIT", "SHARE", "SM"):
            end = head.index(name) + len(name)
            assert line.ljust(80)[end - 1 : end + 1].endswith(" "), line


def test_a_file_gets_everything() -> None:
    """Where there is no terminal nothing is cut, however long it is."""
    found = crowded()
    laid_out = "\n".join(written(found, None))
    assert CUT not in laid_out
    for row in found.rows:
        assert f"{row.name} " in laid_out


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("width", [*WIDTHS, None])
def test_nothing_foreign_reaches_the_terminal(hostile: str, width: int | None) -> None:
    """What would move the cursor, turn the text, or be markup, in names and in faults, is shown as text."""
    who = pod(hostile, hostile)
    facts = snapshot(
        device(gpu(), attributed=GIB),
        usages=[usage(who, leaf())],
        pods=[who],
        faults=[fault(hostile, hostile)],
        node=hostile,
    )
    laid_out = lines(shown(facts), width)
    for line in text(laid_out).split("\n"):
        assert PRINTABLE.fullmatch(line), ascii(line)
        assert width is None or len(line) <= width
    assert painted(laid_out).plain == "\n".join("".join(part for part, _ in line) for line in laid_out)


@given(
    rows=st.lists(
        st.builds(
            Row,
            name=st.text(string.ascii_letters + "/- ", max_size=90),
            inset=st.sampled_from((0, 2, 4)),
            used=st.sampled_from(("0", "1.0Gi", "1023Mi", "9999.9Gi", UNKNOWN)),
            limit=st.sampled_from(("", "80.0Gi")),
            share=st.sampled_from(("", "7%", "1000%")),
            sm=st.sampled_from(("", "100%")),
            notes=st.lists(st.text(string.ascii_letters + "_", min_size=1, max_size=30), max_size=5).map(tuple),
        ),
        max_size=8,
    ),
    width=st.integers(50, 200),
)
def test_any_table_fits(rows: list[Row], width: int) -> None:
    """Whatever the names and notes are: from 50 columns on nothing is wider than the terminal."""
    for line in lines(Table((("node", Tone.STRONG),), (("w" * 300, Tone.BAD),), tuple(rows)), width):
        assert sum(len(part) for part, _ in line) <= width


def test_messages_keep_two_lines() -> None:
    """A fault says what to do, and a wall of faults does not push the table away."""
    many = snapshot(faults=[fault(f"reason-{number} " + "and so on " * 20, "") for number in range(9)])
    laid_out = written(shown(many), 80)
    assert laid_out[1].startswith("devices: reason-0 and so on") and laid_out[2].startswith("  ")
    assert laid_out[2].endswith(CUT)
    assert laid_out[13:] == [f"{CUT} and 4 more"], "no GPU is one of them"


@pytest.mark.parametrize("note", ["grace 118s", "XID 119 59m ago", "did not answer", "unjudged"])
def test_the_first_note_stays_whole(note: str) -> None:
    """On 60 columns, too: half a number is another number. What gives way is the name."""
    row = Row("n" * 100, 0, "1023Mi", "1023Mi", "1000%", "100%", (note, "then evict"))
    assert note in written(Table((), (), (row,)), 60)[2]


def test_nothing_to_show() -> None:
    """Before the first answer it is waited for, and why it does not come; a node without a GPU is said to have none."""
    assert written(waiting(""), 80) == ["waiting for the daemon"]
    assert written(waiting("http://node-1:9478: \x1b"), 80)[1] == r"daemon: http://node-1:9478: \x1b"
    assert written(shown(snapshot()), 80)[1:] == ["No GPU is known here."]


def test_notes_lose_whole_words() -> None:
    """From the end, with a mark; a number is never cut in two."""
    row = Row("n" * 100, 0, "1.0Gi", "2.0Gi", "50%", "7%", ("grace 118s", "then evict", "limit invalid"))
    by_width = {width: written(Table((), (), (row,)), width)[2] for width in (60, 96, 160)}
    assert by_width[60].endswith("  grace 118s")
    assert by_width[96].endswith(f"  grace 118s then evict {CUT}")
    assert by_width[160].endswith("  grace 118s  then evict  limit invalid")


def test_what_does_not_fit_is_counted() -> None:
    """On a terminal of few lines the last one says how many are missing, and how to see them."""
    found = lines(crowded(20), 80)
    assert cropped(found, len(found), "so") == found
    short = cropped(found, 10, "so")
    assert len(short) == 10 and short[:9] == found[:9]
    assert text([short[9]]) == f"{CUT} {len(found) - 9} more lines: so\n"
    assert len(cropped(found, 1, "so")) == 1


def test_a_terminal_without_our_two_marks() -> None:
    """Where the character set has neither dash nor dots, ASCII stands for them, in as many columns."""
    found = lines(shown(busy()), 60)
    for encoding in ("ascii", "latin-1", None, "no-such"):
        plain = encodable(found, encoding)
        assert text(plain).isascii()
        assert [len(text([line])) for line in plain] == [len(text([line])) for line in found]
    assert encodable(found, "utf-8") == found


def test_the_screen_is_given_back() -> None:
    """It is drawn on the terminal's other screen, in colours, as wide as the terminal is; and left at the end."""
    file = io.StringIO()
    console = Console(
        file=file, force_terminal=True, color_system="standard", width=70, height=12, legacy_windows=False
    )
    asked: list[tuple[int, int]] = []

    def laid_out(columns: int, rows: int) -> list[Line]:
        asked.append((columns, rows))
        return cropped(lines(shown(busy()), columns), rows, "so")

    with Screen(console) as screen:
        screen.show(laid_out)
    drawn = file.getvalue()
    assert asked == [(70, 12)]
    assert drawn.index("\x1b[?1049h") < drawn.index("gpu-node-1") < drawn.index("\x1b[?1049l")
    assert "\x1b[1;31m" in drawn and drawn.rindex("\x1b[?25h") > drawn.index("\x1b[?25l")
