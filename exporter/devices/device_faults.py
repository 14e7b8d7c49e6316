"""
The failed readings of one device, in one round.

What comes in: questions to a library, and the collectors that are off. What goes out: answers, and the faults of the
device.

The rule: a figure that the device does not have is None, and no fault. Figures that the device failed to give are one
fault together, and leave the round complete.
"""

from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from exporter.devices.errors import CallError, LibraryError, UnsupportedError
from exporter.model import ALL_ON, Collector, Fault, GpuUuid, Off

P = ParamSpec("P")
T = TypeVar("T")


class DeviceFaults:
    """Collects the faults of the device `uuid`. `called` is its name for people: `GPU 0`."""

    def __init__(self, called: str, uuid: GpuUuid, off: Off = ALL_ON) -> None:
        self._called = called
        self._uuid = uuid
        self._off = off
        self._faults: list[Fault] = []
        self._unread: list[LibraryError] = []

    def figure(self, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Ask for a figure; None when there is no answer. A lost device still raises."""
        try:
            return question(*args, **kwargs)
        except UnsupportedError:
            return None
        except CallError as error:
            self._unread.append(error)
            return None

    def collected(self, collector: Collector, question: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | None:
        """Ask for a figure unless its collector is off: then the question is not asked, which is no fault."""
        return None if collector in self._off else self.figure(question, *args, **kwargs)

    def unread(self, errors: Iterable[LibraryError]) -> None:
        """Add figures that were asked for elsewhere, and not given."""
        self._unread.extend(errors)

    def add(self, error: LibraryError, what: str, *, incomplete: bool = True, advice: str = "") -> None:
        """Add a failed reading, with its reason."""
        self._add(error.reason, f"{what}: {error}{advice}", incomplete=incomplete)

    def all(self) -> tuple[Fault, ...]:
        """Return the faults so far; the missing figures are the last one. To be called once."""
        if self._unread:
            words = "; ".join(map(str, self._unread))
            self._add("figures_unread", f"figures are missing: {words}", incomplete=False)
        return tuple(self._faults)

    def _add(self, reason: str, message: str, *, incomplete: bool) -> None:
        self._faults.append(Fault("devices", reason, f"{self._called}: {message}", self._uuid, incomplete=incomplete))
