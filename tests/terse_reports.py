"""
Reports one thing of each test from a worker of pytest-xdist instead of five: how it ended.

What comes in: a test of a worker. What goes out: its reports, without those of a setup and a teardown that passed, and
without its begin and end, which only `pytest -v` shows. With 9,000 tests each of these messages costs a second of CPU.

The rule: what did not pass is reported in any case. With `--durations` everything is reported.
"""

import pytest
from _pytest.runner import runtestprotocol


def pytest_configure(config: pytest.Config) -> None:
    """Begin, if this is a worker."""
    if hasattr(config, "workerinput") and not config.getoption("durations"):
        config.pluginmanager.register(Terse())


class Terse:
    """Runs a test as pytest itself does, and reports less of it."""

    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        """Run one test; what passed before and after it is not reported."""
        for report in runtestprotocol(item, log=False, nextitem=nextitem):
            if report.when == "call" or not report.passed:
                item.ihook.pytest_runtest_logreport(report=report)
        return True
