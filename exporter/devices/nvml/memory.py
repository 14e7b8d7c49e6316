"""
Device memory.

What comes in: a handle. What goes out: `Memory`, or None where the GPU has no memory of its own (GB10, Thor).

The rule: used is total - free - reserved, whichever way the driver counts. Version 2 of the call tells `reserved`, and
drivers differ only in whether their own `used` includes it, a figure that we do not read. Version 1 (before R510)
does not tell it: there `reserved` is 0, the driver's own share is part of used, and shows up as unattributed.
"""

from exporter.devices.errors import UnsupportedError
from exporter.devices.nvml.library import Handle, Library
from exporter.model import Memory


def read_memory(library: Library, handle: Handle) -> Memory | None:
    """Read the memory of a GPU, or of the GPU instance of a MIG device (shared by all its compute instances)."""
    try:
        return Memory(*library.memory(handle))
    except UnsupportedError:
        return None
