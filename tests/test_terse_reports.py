"""Promises of tests/terse_reports.py: with workers, whatever did not pass is still reported."""

from pathlib import Path

import pytest

TESTS = """
import pytest

@pytest.fixture
def breaks_before():
    raise RuntimeError("before")

@pytest.fixture
def breaks_after():
    yield
    raise RuntimeError("after")

def test_passes(): pass
def test_fails(): assert False
def test_errs_before(breaks_before): pass
def test_errs_after(breaks_after): pass
@pytest.mark.skip(reason="why not")
def test_is_skipped(): pass
"""


def test_what_did_not_pass_is_reported(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A setup or teardown that breaks is an error of the run, as it is without workers; a skipped test is counted."""
    pytester.makepyfile(test_all_ends=TESTS)
    # The worker is a process. Without our other plugins, and with its master in this process, all takes 0.4 s of 1.4.
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    plugins = ("-p", "xdist", "-p", "terse_reports", "-p", "no:cacheprovider")
    ended = pytester.runpytest_inprocess("-q", "-n", "1", *plugins, "--rootdir", pytester.path)
    assert ended.ret is pytest.ExitCode.TESTS_FAILED, ended.outlines + ended.errlines
    assert ended.outlines[-1].startswith("1 failed, 2 passed, 1 skipped, 2 errors in "), ended.outlines
    told = ended.stdout.str()
    assert {word for word in ("before", "after") if f"RuntimeError: {word}" in told} == {"before", "after"}
