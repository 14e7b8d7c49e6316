"""
The fuzz targets: their names, their parts of a campaign, and the folders of their seeds and findings.

What comes in: a name. What goes out: the function that takes bytes and raises where a promise is broken.
"""

import importlib
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
Check = Callable[[bytes], None]

SHARES = {
    "cgroup_lines": 30,
    "quantities": 40,
    "annotations": 7,
    "pod_resources": 2,
    "http_requests": 7,
    "web_config": 7,
    "journal": 5,
    "recording": 2,
}
"""Percent of the inputs of a campaign: the cheaper an input is, the more there are."""
LONGEST = {"cgroup_lines": 2048, "quantities": 160, "http_requests": 4096, "recording": 8192}
"""Bytes of an input; of the others 1024."""


def check_of(name: str) -> Check:
    """Load a target."""
    check: Check = importlib.import_module(f"fuzz.{name}").check
    return check


def kept(name: str) -> list[Path]:
    """List the seeds and findings of a target that are in the tree."""
    return sorted(path for kind in ("seeds", "findings") for path in (HERE / kind / name).glob("*"))


def words(name: str) -> Path:
    """Name the file with the words of a target's format, in the form of libFuzzer."""
    return HERE / "words" / f"{name}.dict"
