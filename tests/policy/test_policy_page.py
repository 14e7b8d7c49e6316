"""docs/policy.md and the pages beside it have all the words of the policy, and its numbers."""

import re
from pathlib import Path

import pytest

from default_rules import default_rules
from enforcer.policy.rules import FEWEST_INTERVALS, READINGS
from enforcer.policy.vocabulary import REASONS_OF, Breaker, Kind, Mode, Reason, State, Trigger
from tools.policy_reference import JITTER, PAGE, latest, written
from tools.reference.reasons import REMEDIES

ROOT = Path(__file__).resolve().parents[2]
TEXT = PAGE.read_text(encoding="utf-8")
REASONS = (ROOT / "docs" / "reference" / "reasons.md").read_text(encoding="utf-8")
OPERATE = (ROOT / "docs" / "operate.md").read_text(encoding="utf-8")
MOST_WORDS = 25


def rows(heading: str, text: str = TEXT) -> dict[str, list[str]]:
    """Read the tables below a heading: first cell, without its code marks, to the others."""
    section = text.split(f"\n## {heading}\n")[1].split("\n## ", maxsplit=1)[0]
    lines = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith(("| `", "| *"))]
    return {cells[0].strip(" `*"): [cell.strip() for cell in cells[1:]] for cells in lines}


def anchors(text: str) -> set[str]:
    """The names by which headings of a page are linked."""
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_the_tables_are_those_of_the_code() -> None:
    """`make golden` writes reasons, kinds and times anew; nothing in them is written by hand."""
    assert written(TEXT) == TEXT


def test_each_reason_has_its_kind_its_meaning_and_its_remedy() -> None:
    """A reader of a reason finds its kind, what it means, and what to do about it."""
    for kind in Kind:
        page = rows(kind.capitalize(), REASONS)
        assert page == {reason: [reason.words, REMEDIES[reason]] for reason in REASONS_OF[kind]}
    assert [remedy for remedy in REMEDIES.values() if not remedy.endswith(".")] == []


def test_a_reason_that_ends_by_itself_says_when() -> None:
    """The remedy of a waiting reason names the moment at which it ends."""
    unbounded = {Reason.NOT_RUNNING, Reason.OTHER_GENERATION, Reason.NOT_OVER_NOW, Reason.QUEUED}
    for reason in set(REASONS_OF[Kind.WAITING]) - unbounded:
        assert re.search(r"\d+ (s|min)\b|three|as above", REMEDIES[reason].lower()), reason


def test_the_page_has_no_words_of_its_own() -> None:
    """Reasons, kinds, states, modes and breakers stand in their tables, each once, and no others."""
    for kind in Kind:
        assert list(rows(kind.capitalize(), REASONS)) == list(REASONS_OF[kind])
    assert list(rows("Kinds of reasons")) == list(Kind)
    assert set(rows("States")) == set(State)
    assert set(rows("Modes")) == set(Mode)
    assert set(rows("Breakers", OPERATE)) == set(Breaker)
    known = {*Reason, *Kind}
    held_by = {word for line in TEXT.splitlines() if line.startswith("| ") for word in re.findall(r"\(`(\w+)`\)", line)}
    assert held_by <= known | {"included", "excluded"}


def test_the_numbers_of_the_page_are_those_of_the_rules() -> None:
    """The defaults that the page states are the defaults."""
    rules = default_rules()
    assert (rules.interval, rules.warn_after, rules.grace, rules.spacing, rules.hold_off) == (5, 15, 120, 60, 300)
    assert (rules.trigger, rules.mode, READINGS, FEWEST_INTERVALS) == (Trigger.LIMIT, Mode.OBSERVE, 3, 2)
    assert (rules.protect.daemon_sets, rules.protect.bare_pods) == (False, False)
    tolerance = rules.tolerance
    assert (tolerance.ratio, tolerance.bytes, tolerance.per_process) == (0.02, 256 * 2**20, 512 * 2**20)
    budgets = [(budget.most, budget.window) for budget in (rules.budgets.node, rules.budgets.namespace)]
    assert budgets == [(3, 600), (2, 600)]
    plain = " ".join(TEXT.split())
    for sentence in (
        "`interval: 5s`, `warn_after: 15s`, `grace: 120s`, ladder `notify`, `evict`, trigger `limit`",
        "2 % of the limit, or 256 MiB capped at a tenth of the limit, the larger",
        "| 2:15 | 135 s over the limit are counted, in at least three readings",
        "Three readings, 10 s in all, remain.",
        "| budget of the node | 3 in 10 min |",
        "| budget of a namespace | 2 in 10 min |",
        "no action for `hold_off` (5 min)",
        "The default mode is `observe`",
    ):
        assert sentence in plain


@pytest.mark.parametrize(
    ("share", "period", "minutes"), [(0.5, 60, 46.2), (0.7, 300, 9.6), (0.9, 1800, 32.9), (1.0, 60, 2.45)]
)
def test_the_bound_is_the_stated_formula(share: float, period: float, minutes: float) -> None:
    """Worked by hand with C = 135 s and readings 6 s apart; always over: C and two readings."""
    rules = default_rules()
    assert JITTER * rules.interval == 6
    seconds = latest(rules, share, period)
    assert seconds is not None
    assert seconds / 60 == pytest.approx(minutes, abs=0.05)


def test_no_bound_is_promised_for_a_third_of_the_time() -> None:
    """At a third or less the counted time does not grow in the long run."""
    assert latest(default_rules(), 1 / 3, 3600) is None
    assert latest(default_rules(), 0.2, 1800) is None


def test_links_to_the_page_and_from_it_lead_somewhere() -> None:
    """Every `policy.md#heading` of another page is a heading here, and every link here names a file or a heading."""
    here = anchors(TEXT)
    pages = [path for folder in ("docs", "alerts") for path in (ROOT / folder).rglob("*.md")]
    for path in (*pages, ROOT / "README.md", ROOT / "CHANGELOG.md"):
        for heading in re.findall(r"policy\.md#([\w-]+)", path.read_text(encoding="utf-8")):
            assert heading in here, f"{path.name}: {heading}"
    for file, heading in re.findall(r"\]\(([^)#]*)(?:#([\w-]+))?\)", TEXT):
        assert (PAGE.parent / file).exists(), file
        target = TEXT if not file else (PAGE.parent / file).read_text(encoding="utf-8") if heading else ""
        assert not heading or heading in anchors(target), f"{file}#{heading}"


def test_sentences_are_short() -> None:
    """The page is read at 3 a.m.: no sentence outside of tables has more than 25 words."""
    prose = re.sub(r"```.*?```", "", TEXT, flags=re.DOTALL)
    lines = [line for line in prose.splitlines() if not line.startswith(("|", "#", "<!--"))]
    for sentence in re.split(r"(?<=[.:?!])\s+|\n\n|\n- ", "\n".join(lines)):
        assert len(sentence.split()) <= MOST_WORDS, sentence
