"""docs/systems.md is the catalogue, and nothing else."""

from dataclasses import replace
from functools import cache
from pathlib import Path

from exporter.limits.loading import builtin
from tools.limits_reference import page
from tools.scenario_results import NOT_YET, Outcome, results, under_enforce

ROOT = Path(__file__).parents[2]

book = cache(results)
"""To read the book takes 0.3 s: once for three tests."""


@cache
def written() -> str:
    """Write the page."""
    return page(builtin(), book())


def test_the_page_is_written_from_the_catalogue() -> None:
    """After a change: `python -m tools.limits_reference > docs/systems.md`."""
    assert (ROOT / "docs" / "systems.md").read_text() == written()


def test_every_key_is_on_the_page() -> None:
    """An operator finds each key that is read."""
    text = written()
    for system in builtin():
        assert f"## {system.name}\n" in text
        for row in system.rows:
            assert f"`{row.key}`" in text


def test_the_page_says_what_enforcing_does_with_each_system_of_the_book() -> None:
    """An operator reads before switching enforcement on whether it acts at all, and if not, why."""
    summary, _, nothing = written().partition("\n## Where nothing is enforced\n")
    nothing = nothing.partition("\n## ")[0]
    for name, outcomes in book().items():
        line = next(line for line in summary.splitlines() if f"(#{name})" in line)
        reasons = [line for line in nothing.splitlines() if f"(#{name})" in line]
        assert bool(reasons) == ("[nothing]" in line) == any(not outcome.action for outcome in outcomes)
        for outcome in outcomes:
            assert outcome.action in line
            assert outcome.action or any(outcome.reason in reason and outcome.mode in reason for reason in reasons)


def test_modes_are_named_where_they_end_differently() -> None:
    acts, holds = Outcome("hook", "`evict` after 2 min"), Outcome("mps", reason="`mps`")
    assert under_enforce([acts, replace(acts, mode="other")], "nothing") == "`evict` after 2 min"
    assert under_enforce([replace(acts, mode=""), holds], "nothing") == "`evict` after 2 min (usual); nothing (mps)"


def test_a_result_that_no_version_has_yet_is_marked(tmp_path: Path) -> None:
    """The page promises nothing that this version does not do."""
    expected = "{role: above, pod: a, acts: {action: evict, after: 135s}"
    (tmp_path / "now.yaml").write_text(f"{{system: now, scenes: [{{expect: {{verdicts: [{expected}}}]}}}}]}}")
    (tmp_path / "later.yaml").write_text(
        f"{{system: later, scenes: [{{expect: {{verdicts: [{expected}, needs: policy-2}}]}}}}]}}"
    )
    found = results(tmp_path)
    assert found["now"][0].action == "`evict` after 2 min 15 s"
    assert found["later"][0].action == f"`evict` after 2 min 15 s {NOT_YET}"
