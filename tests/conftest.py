"""
Fixtures that stand for the world: the fake driver, real containers, the daemon as a process of its own; and the pace of
all tests.

What is faked: the driver library (and so the GPU). What is not: everything else; see docs/testbed.md.
"""

import gc
import logging
import signal
from collections.abc import Generator, Iterator

import pytest
import structlog
from hypothesis import HealthCheck, settings

import enum_reprs
from exporter.rounds.logs import printable

pytest_plugins = [
    "driver.fixtures",
    "containers.fixtures",
    "daemon.fixtures",
    "faults.plugin",
    "heavy_files",
    "terse_reports",
    "pytester",
]

EXAMPLES = 25
"""Of Hypothesis, for each property in `make check`; in `make test` they are 100, or as many as a test says."""


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks for the profile
def pytest_configure() -> None:
    """Leave out what costs time in thousands of tests and shows nothing."""
    # No deadline for an example, nor for making the first ten: on a busy machine a second says nothing about the code.
    slow = [HealthCheck.too_slow]
    settings.register_profile("test", settings.default, deadline=None, suppress_health_check=slow)
    settings.register_profile("check", settings.get_profile("test"), max_examples=EXAMPLES)
    settings.load_profile("test")
    # 370,000 objects live as long as the tests: Python's 700 lets it look through them for 6 s of a CPU.
    gc.set_threshold(50_000)
    # structlog's own choice renders each traceback with all variables, by rich: 40 ms each.
    plain = structlog.dev.ConsoleRenderer(colors=False, exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[structlog.processors.add_log_level, printable, plain])
    enum_reprs.forbid()
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A background job of a shell ignores Ctrl-C, and so would each program that a test starts and interrupts.
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let Python look for no garbage among all the tests: half a second each time."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """Look for garbage that warns once: pytest looks five times after it, and each look at all tests takes 0.2 s."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def logging_as_before() -> Iterator[None]:
    """A test may set up the log of its process, which all tests share."""
    before, handlers = structlog.get_config(), logging.root.handlers[:]
    yield
    structlog.configure(**before)
    logging.root.handlers[:] = handlers
