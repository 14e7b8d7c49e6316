"""
`gpusteward-exporter`: the read-only daemon.

Exit codes: 0 ended by a signal, 1 the node cannot do what was asked, 2 wrong usage or config.

The rule: signal handlers are set before anything else is imported, because the imports take half a second. Process 1 of
a container ignores a SIGTERM without a handler. The kubelet would then wait until it kills the container.
"""

import os
import signal
import sys
from typing import NoReturn


def main() -> int:
    """Run the daemon; return the exit code."""
    leave_on_signals()
    from exporter.running import run  # noqa: PLC0415  (see the rule)

    return run(sys.argv[1:], os.environ)


def leave_on_signals() -> None:
    """End at SIGTERM and SIGINT, until the event loop takes over."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _leave)


def _leave(*_signal: object) -> NoReturn:
    """End at once: nothing is open yet, and an exception would be raised in the middle of an import."""
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
