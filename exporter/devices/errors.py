"""
The errors of a driver's library, NVIDIA's or another vendor's, by how much they affect.

What comes in: the name of a call, and the library's answer. What goes out: an exception. Its class is all that the
readers need to know.

- `CallError`: this figure, this time. The reader goes on without it.
- `UnsupportedError`: the device or the library never has this figure. That is no fault.
- `LayoutError`: an answer whose layout is unknown. It is refused, never guessed.
- `DeviceLostError`: this device. The others go on.
- `LibraryGoneError`: the library. State is dropped, and initialisation is tried again.
"""


class LibraryError(Exception):
    """A failed call of the library; `reason` is the value of the metric's label."""

    reason = "driver_error"

    def __init__(self, call: str, text: str) -> None:
        super().__init__(f"{call}: {text}")


class CallError(LibraryError):
    """One call did not answer; other calls may."""


class NoPermissionError(CallError):
    """This process has no permission for the call."""

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
    """The object of the call does not exist: an empty MIG slot, an ended process, no sample since the last one."""


class InvalidArgumentError(CallError):
    """The library rejects the arguments, for example because an instance has just been destroyed."""


class InsufficientSizeError(CallError):
    """The answer is larger than the buffer."""


class LayoutError(CallError):
    """The answer is not the known structure, or holds impossible values."""

    reason = "layout_unknown"


class DeviceLostError(LibraryError):
    """The device as a whole does not answer."""

    reason = "gpu_lost"


class LibraryGoneError(LibraryError):
    """The library cannot be loaded or initialised, or reports that it is not initialised any more."""

    reason = "library_gone"


REFUSED = CallError, DeviceLostError
"""The errors of one device that leave the others working."""
