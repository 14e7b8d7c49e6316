"""
The version of this package.

What goes out: the version that pyproject.toml names; `make manifests` writes it here. `importlib.metadata` would read
the same from the installed files, but its import takes 1 MB of each daemon.
"""

VERSION = "0.1.0"
