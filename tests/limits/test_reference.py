"""docs/systems.md is the catalogue, and nothing else."""

from pathlib import Path

from exporter.limits.loading import builtin
from tools.limits_reference import page

ROOT = Path(__file__).parents[2]


def test_the_page_is_written_from_the_catalogue() -> None:
    """After a change: `python -m tools.limits_reference > docs/systems.md`."""
    assert (ROOT / "docs" / "systems.md").read_text() == page(builtin())


def test_every_key_is_on_the_page() -> None:
    """An operator finds each key that is read."""
    text = page(builtin())
    for system in builtin():
        assert f"## {system.name}\n" in text
        for row in system.rows:
            assert f"`{row.key}`" in text
