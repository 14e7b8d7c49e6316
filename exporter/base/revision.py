"""
The git commit of which this package was built.

What comes in: the file that the build left in the package (hatch_build.py). What goes out: the commit, or `unknown`: a
checkout that runs as it is may have changed since it was installed.
"""

from pathlib import Path

FILE = "revision.txt"
UNKNOWN = "unknown"


def revision() -> str:
    """Return the commit."""
    written = Path(__file__).parents[1] / FILE
    return (written.read_text(encoding="ascii").strip() if written.is_file() else "") or UNKNOWN
