"""Pages, compared byte for byte. After a wanted change: `PYTHONPATH=tests python -m golden`, then read the diff."""

from pathlib import Path

from golden.everything import golden_page, reference

ROOT = Path(__file__).parents[2]


def test_the_page_of_a_node_that_has_everything() -> None:
    """MIG, MPS, time-slicing, ghosts, unknown values, a lost GPU and two generations of one name: no byte changes."""
    assert golden_page().decode() == (ROOT / "tests/golden/metrics.txt").read_text(encoding="utf-8")


def test_the_reference_is_up_to_date() -> None:
    """docs/metrics.md says what the code's help texts say."""
    assert reference() == (ROOT / "docs/metrics.md").read_text(encoding="utf-8")


def test_the_reference_names_every_family() -> None:
    """Each family has one row, and its labels are written so that a reader finds all of them."""
    rows = [line for line in reference().splitlines() if line.startswith("| `gpusteward_")]
    text = golden_page().decode()
    assert len(rows) == sum(line.startswith("# TYPE") for line in text.splitlines())
    assert any("*container*, `resource`" in row for row in rows)
    assert any("| `namespace`, `pod`, `pod_uid`," in row for row in rows)
