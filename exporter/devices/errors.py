"""
How far trouble with a driver's library reaches, NVIDIA's or another vendor's.

What comes in: the name of a call, and what the library answered. What goes out: an exception whose class is all that
the readers need to know.

- `CallError`: this figure, this time. The reader goes on without it.
- `UnsupportedError`: the device or the library never has this figure. That is no fault.
- `LayoutError`: an answer that is not laid out as we know it. It is refused, never guessed.
- `DeviceLostError`: this device. The others go on.
- `LibraryGoneError`: the library. State is dropped, and initialisation is tried again.
"""


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
    """The device or the library does not have this figure: it is absent, and that is no fault."""

    reason = "unsupported"


class OtherVersionError(UnsupportedError):
    """The library does not know this call, or this version of its structure: another version may be known."""


class NodesUnseenError(UnsupportedError):
    """The daemon cannot see which processes have a device's node open."""

    reason = "nodes_unseen"


class NotFoundError(CallError):
    """What was asked about is not there: an empty MIG slot, a process that has ended, no sample since the last."""


class InvalidArgumentError(CallError):
    """The question makes no sense to the library, for example because an instance has just been destroyed."""


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


REFUSED = CallError, DeviceLostError
"""What one device may answer while the others go on."""
