"""
What the device files of NVIDIA's driver lead to: runc, with one mount more, plays the kernel module.

In: the words that a runtime gives to runc. Out: a container. If it was given the driver's device files, it has the
folder that holds the fake driver's state. Law: a container that was given no device file gets nothing.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

STATE = "/run/fake-nvml"
CONTROL = "/dev/nvidiactl"
"""Every process that talks to the driver opens it."""


def program(folder: Path) -> Path:
    """Write what is called in runc's place into a bed's folder."""
    file = folder / "runc-with-driver"
    command = shlex.join([sys.executable, "-I", __file__, str(folder / "driver")])
    file.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    file.chmod(0o755)
    return file


def joined(spec: Mapping[str, Any], state: str) -> dict[str, Any]:
    """Add the driver's state to an OCI spec with the device files, unless the spec already mounts it."""
    given = {one["path"] for one in spec.get("linux", {}).get("devices", ())}
    if CONTROL not in given or any(one["destination"] == STATE for one in spec["mounts"]):
        return dict(spec)
    mount = {"destination": STATE, "type": "bind", "source": state, "options": ["rbind", "rw"]}
    return {**spec, "mounts": [*spec["mounts"], mount]}


def main(state: str, *words: str) -> NoReturn:
    """Be runc, and before it creates a container, see to its spec."""
    if "create" in words:
        file = _bundle(words) / "config.json"
        file.write_text(json.dumps(joined(json.loads(file.read_text()), state)))
    os.execvp("runc", ["runc", *words])  # noqa: S606


def _bundle(words: Sequence[str]) -> Path:
    return Path(words[words.index("--bundle") + 1])


if __name__ == "__main__":
    main(*sys.argv[1:])
