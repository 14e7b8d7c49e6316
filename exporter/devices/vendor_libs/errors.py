"""
How far trouble with a vendor's library reaches.

What comes in: the name of a call, and the code that it answered. What goes out: an exception whose class is all that
the readers need to know.

- `CallError`: this figure, this time. The reader goes on without it.
- `UnsupportedError`: this figure, never, here. That is no fault.
- `LayoutError`: an answer that is not laid out as we know it. It is refused, never guessed.
- `DeviceLostError`: this device. The others go on.
- `LibraryGoneError`: the library. State is dropped, and initialisation is tried again.
"""

from collections.abc import Mapping


class LibraryError(Exception):
    """A call that the library refused: `reason` is the word for metrics."""

    reason = "driver_error"

    def __init__(self, call: str, text: str) -> None:
        super().__init__(f"{call}: {text}")


class CallError(LibraryError):
    """One call did not answer; everything else may."""


class NoPermissionError(CallError):
    """This process may not ask that."""

    reason = "no_permission"


class UnsupportedError(CallError):
    """The device or the library does not have this figure."""

    reason = "unsupported"


class OtherVersionError(UnsupportedError):
    """The library does not know this call, or this version of its structure: another one may be known."""


class NodesUnseenError(UnsupportedError):
    """Who has a device's node open cannot be seen."""

    reason = "nodes_unseen"


class NotFoundError(CallError):
    """What was asked about is not there any more."""


class InvalidArgumentError(CallError):
    """What was asked makes no sense to the library; of a structure with a version it may be the version."""


class InsufficientSizeError(CallError):
    """There is more than there was room for."""


class LayoutError(CallError):
    """What came back is not the structure that we know, or holds what cannot be."""

    reason = "layout_unknown"


class DeviceLostError(LibraryError):
    """The device as a whole does not answer."""

    reason = "gpu_lost"


class LibraryGoneError(LibraryError):
    """The library cannot be loaded or initialised, or has forgotten that it was."""

    reason = "library_gone"


Meanings = Mapping[int, type[LibraryError]]
"""What a library's codes mean. 0 is success in all of them; a code that is missing is a CallError."""


def check(call: str, code: int, meanings: Meanings) -> None:
    """Raise what `code` means."""
    if code != 0:
        raise meanings.get(code, CallError)(call, f"code {code}")
