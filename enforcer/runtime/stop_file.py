"""
The stop file: while it is there, nothing is done on this node.

What comes in: its path. What goes out: a ceiling of the mode, and a log line when it comes or goes.

The rule: a file that cannot be looked for counts as one that is there. So does one in a folder that other users of the
node may write: they could make it, or remove the operator's. It works without the API server.
"""

from pathlib import Path

import structlog

from enforcer.journal import trusted_files
from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason

log = structlog.get_logger()

STOPPED = (Ceiling(Mode.OBSERVE, Reason.STOPPED),)


class StopFile:
    """Looks for the file at `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stopped = ""

    def ceilings(self) -> tuple[Ceiling, ...]:
        """Look for the file, and log what changed."""
        before, self._stopped = self._stopped, self._look()
        if self._stopped and not before:
            log.warning("enforcer.stopped", file=str(self.path), reason=self._stopped)
        elif before and not self._stopped:
            log.warning("enforcer.stop_ended", file=str(self.path))
        return STOPPED if self._stopped else ()

    def _look(self) -> str:
        try:
            trusted_files.checked(self.path.parent)
            self.path.lstat()
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"it cannot be looked for: {error.strerror}"
        return "it is there"
