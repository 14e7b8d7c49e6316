"""
From a command line to an exit code: runs the daemon.

What comes in: arguments and environment. What goes out: 0 ended by a signal, 1 the node cannot do what was asked, 2
wrong usage or config. Errors are written as sentences for people, without a traceback.
"""

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Mapping, Sequence

from exporter.base.problem import lines
from exporter.base.version import VERSION
from exporter.config import ConfigError, parse_arguments, start
from exporter.daemon import observe
from exporter.devices import DeviceError
from exporter.rounds import logs
from exporter.rounds.latest import Latest
from exporter.web.listening import WebError

PROGRAM = "gpusteward-exporter"


def run(argv: Sequence[str], environ: Mapping[str, str]) -> int:
    """Run the daemon; return the exit code."""
    arguments = parse_arguments(argv, environ, program=PROGRAM, version=VERSION)

    def work() -> None:
        config, refused = start(arguments)
        logs.configure(config.log.level, config.log.format)
        asyncio.run(until_signalled(observe(arguments, config, Latest(), program=PROGRAM, refused=refused)))

    return exit_code(PROGRAM, work, DeviceError, WebError)


def exit_code(program: str, work: Callable[[], None], *impossible: type[Exception]) -> int:
    """Do `work`; return 0, or write the error and return 2 for a wrong config, 1 for an `impossible` error."""
    code = 0
    try:
        work()
    except* ConfigError as errors:
        code = _refuse(program, errors, 2)
    except* impossible as errors:
        code = _refuse(program, errors, 1)
    return code


async def until_signalled(work: Coroutine[None, None, None]) -> None:
    """Do `work` until SIGTERM or SIGINT; then cancel it, and wait until it has cleaned up."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name="daemon")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def _refuse(program: str, errors: BaseExceptionGroup[Exception], code: int) -> int:
    """Write the error, and return `code`."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    for line in lines(program, error):
        logs.write(line)
    return code
