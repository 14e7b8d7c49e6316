"""Promises of tests/heavy_files.py."""

import os
import subprocess
import sys
from pathlib import Path

from heavy_files import HEAVY, TESTS, group

WORKER = """
import os
from pathlib import Path

import pytest

@pytest.mark.parametrize("number", range(4))
def test_by(number):
    Path(__file__).with_suffix(".worker").write_text(os.environ["PYTEST_XDIST_WORKER"])
"""


def test_the_heavy_files_are_one_group() -> None:
    """Each file that is called heavy is there, and the group has no other file."""
    files = (file.relative_to(TESTS.parent).as_posix() for file in TESTS.glob("*/test_*.py"))
    assert sorted(file for file in files if group(file) == "heavy") == sorted(f"tests/{name}" for name in HEAVY)


def test_one_worker_runs_all_heavy_files(tmp_path: Path) -> None:
    """With two workers and whole files, the heavy ones are run by one of them, and another file by the other."""
    names = [*HEAVY, "light/test_other.py"]
    for name in names:
        file = tmp_path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(WORKER)
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
    command += ["-p", "heavy_files", "-p", "no:cacheprovider", "--import-mode=importlib", "--rootdir", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(TESTS)}
    ended = subprocess.run(
        [*command, tmp_path], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    *heavy, light = ((tmp_path / "tests" / name).with_suffix(".worker").read_text() for name in names)
    assert len({*heavy}) == 1 and light not in heavy, (heavy, light)
