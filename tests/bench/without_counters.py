"""
The exporter without its counters of use over time, for a comparison: no peer has such counters.

In: the exporter's arguments. Out: its exit code. Law: nothing else differs from the installed program.
"""

import sys

from exporter.__main__ import main
from exporter.accounts import integrals


def nothing(*_: object, **__: object) -> integrals.Known:
    """Count nothing."""
    return {}


if __name__ == "__main__":
    integrals.advance = nothing
    sys.exit(main())
