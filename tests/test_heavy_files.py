"""Promises of tests/heavy_files.py."""

from heavy_files import HEAVY, TESTS, group


def test_the_heavy_files_are_one_group() -> None:
    """Each file that is called heavy is there, and the group has no other file."""
    files = (file.relative_to(TESTS.parent).as_posix() for file in TESTS.glob("*/test_*.py"))
    assert sorted(file for file in files if group(file) == "heavy") == sorted(f"tests/{name}" for name in HEAVY)
