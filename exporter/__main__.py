"""
`gpusteward-exporter`: the read-only daemon.

Exit codes: 0 ended by a signal, 1 the node cannot do what was asked, 2 wrong usage or config.
"""

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Coroutine

from exporter import logs
from exporter.config import ConfigError, load, parse_arguments
from exporter.daemon import VERSION, observe
from exporter.devices import DeviceError
from exporter.latest import Latest
from exporter.web_server import WebError

PROGRAM = "gpusteward-exporter"


def main() -> int:
    """Run the daemon; return the exit code."""
    arguments = parse_arguments(sys.argv[1:], os.environ, program=PROGRAM, version=VERSION)
    code = 0
    try:
        config = load(arguments)
        logs.configure(config.log.level, config.log.format)
        asyncio.run(until_signalled(observe(arguments, config, Latest(), program=PROGRAM)))
    except* ConfigError as errors:
        code = refuse(PROGRAM, errors, 2)
    except* (DeviceError, WebError) as errors:
        code = refuse(PROGRAM, errors, 1)
    return code


async def until_signalled(work: Coroutine[None, None, None]) -> None:
    """Do `work` until SIGTERM or SIGINT; then cancel it, and wait until it has cleaned up."""
    loop = asyncio.get_running_loop()
    task = loop.create_task(work, name="daemon")
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, task.cancel)
    with contextlib.suppress(asyncio.CancelledError):
        await task


def refuse(program: str, errors: BaseExceptionGroup[Exception], code: int) -> int:
    """Say what is wrong in a sentence for people, without a traceback."""
    error: BaseException = errors
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    print(f"{program}: {error}", file=sys.stderr)  # noqa: T201  (the one place that speaks to a terminal)
    return code


if __name__ == "__main__":
    sys.exit(main())
