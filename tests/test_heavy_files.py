"""Promises of tests/heavy_files.py."""

import pytest

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


def test_one_worker_runs_all_heavy_files(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """With two workers and whole files, the heavy ones are run by one of them, and another file by the other."""
    names = [*HEAVY, "light/test_other.py"]
    for name in names:
        file = pytester.path / "tests" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(WORKER)
    # The workers are processes. Without our other plugins, and with their master in this process, all takes 1 s of 2.1.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(TESTS))
    plugins = ("-p", "xdist", "-p", "heavy_files", "-p", "no:cacheprovider")
    workers = ("-n", "2", "--dist", "loadfile", "--no-loadscope-reorder")
    ended = pytester.runpytest_inprocess(
        "-q", *plugins, *workers, "--import-mode=importlib", "--rootdir", pytester.path, pytester.path
    )
    assert ended.ret is pytest.ExitCode.OK, ended.outlines + ended.errlines
    *heavy, light = ((pytester.path / "tests" / name).with_suffix(".worker").read_text() for name in names)
    assert len({*heavy}) == 1 and light not in heavy, (heavy, light)
