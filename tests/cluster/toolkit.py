"""
A stand-in for NVIDIA's container runtime: runc, behind a look at what the container's environment asks for.

In: the words that containerd gives to an OCI runtime, the settings of the bed. Out: a container with the fake driver.
After cmd/nvidia-container-runtime-hook of https://github.com/NVIDIA/nvidia-container-toolkit in two things:

- NVIDIA_VISIBLE_DEVICES=all brings the driver: here its library, and the state folder that stands for the device files;
- NVIDIA_MIG_MONITOR_DEVICES=all brings the device of mig/monitor, and is refused to who has no CAP_SYS_ADMIN.

Law: a container that asks for nothing is what runc makes of it.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

HANDLER = "nvidia"
LIBRARY = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.1"
STATE = "/run/fake-nvml"
MONITOR = "/dev/nvidia-caps/nvidia-cap2"
SETTINGS = "toolkit.json"


class RefusedError(Exception):
    """The container must not start; why."""


def program(folder: Path) -> Path:
    """Write the program that containerd calls into a bed's folder."""
    command = shlex.join([sys.executable, "-I", __file__, str(folder / SETTINGS)])
    file = folder / "nvidia-container-runtime"
    file.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    file.chmod(0o755)
    return file


def settle(folder: Path, *, library: Path, state: Path) -> None:
    """Say what the bed's driver is."""
    device = folder / "nvidia-cap"
    device.touch()
    settings = {LIBRARY: str(library), STATE: str(state), MONITOR: str(device)}
    (folder / SETTINGS).write_text(json.dumps(settings))


def injected(spec: Mapping[str, Any], sources: Mapping[str, str]) -> dict[str, Any]:
    """Add to an OCI spec what its environment asks for; `sources`: path in the container to path here."""
    asked = dict(one.partition("=")[::2] for one in spec["process"].get("env", ()))
    places = [LIBRARY, STATE] if asked.get("NVIDIA_VISIBLE_DEVICES") == "all" else []
    if asked.get("NVIDIA_MIG_MONITOR_DEVICES") == "all":
        if "CAP_SYS_ADMIN" not in spec["process"].get("capabilities", {}).get("bounding", ()):
            raise RefusedError("cannot set MIG_MONITOR_DEVICES in non privileged container")
        places.append(MONITOR)
    options = {STATE: ["rbind", "rw"]}
    mounts = [
        {"destination": one, "type": "bind", "source": sources[one], "options": options.get(one, ["rbind", "ro"])}
        for one in places
    ]
    return {**spec, "mounts": [*spec["mounts"], *mounts]}


def _after(words: Sequence[str], flag: str) -> Path:
    return Path(words[words.index(flag) + 1])


def main(settings: str, *words: str) -> NoReturn:
    """Be runc, and before it creates a container, see to its spec."""
    if "create" in words:
        file = _after(words, "--bundle") / "config.json"
        try:
            made = injected(json.loads(file.read_text()), json.loads(Path(settings).read_text()))
        except RefusedError as refusal:
            _after(words, "--log").write_text(json.dumps({"level": "error", "msg": str(refusal)}) + "\n")
            sys.exit(1)
        file.write_text(json.dumps(made))
    os.execvp("runc", ["runc", *words])  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
