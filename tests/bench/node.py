"""
A node of a given size for measurements: real processes in real cgroups, listed by the fake driver.

In: how many GPUs and processes. Out: the fake node and the file of names. Law: what is measured is the daemon; the
processes sleep, and the driver answers from data.
"""

from __future__ import annotations

import json
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from containers.cgroupfs import Ledger, below, move, new_token
from driver.node import FakeNode, FakeProcess, GiB, MiB, gpus

PER_CONTAINER = 4
"""Processes of one container: a trainer and its three workers."""


@dataclass(frozen=True, slots=True)
class Size:
    """So many GPUs, with so many processes on each."""

    gpus: int
    processes: int

    def __str__(self) -> str:
        return f"{self.gpus} x {self.processes}"


@contextmanager
def running(size: Size, folder: Path, build: Path, *, limit: str = "") -> Iterator[tuple[FakeNode, Path]]:
    """
    Start the processes, each group of four in a container's cgroup, and describe them to driver and names file.

    With `limit` each container declares it; its four processes hold 256 MiB.
    """
    ledger = Ledger(new_token())
    ledger.open()
    total = size.gpus * size.processes
    # One shell holds all: it starts them, prints their numbers, and ends them when its input closes.
    script = 'i=0; while [ $i -lt "$0" ]; do sleep 1000000 & echo $!; i=$((i+1)); done; echo; read _; kill $(jobs -p)'
    holder = subprocess.Popen(
        ["bash", "-c", script, str(total)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        pids = [int(line) for line in iter(holder.stdout.readline, "\n")]
        names = []
        for first in range(0, total, PER_CONTAINER):
            pod, container = str(uuid.uuid4()), uuid.uuid4().hex * 2
            path = f"/kubepods/burstable/pod{pod}/{container}"
            ledger.make(path, roots=ledger.mounts.kubelet[:1])
            for pid in pids[first : first + PER_CONTAINER]:
                move(pid, below(ledger.mounts.kubelet[0], path))
            names.append(
                {
                    "namespace": f"team-{first % 7}",
                    "pod": f"job-{first}",
                    "pod_uid": pod,
                    "container": "main",
                    "container_id": container,
                    "annotations": {"nvidia.com/container.main.gpu-memory.limit": limit} if limit else {},
                }
            )
        (folder / "names.json").write_text(json.dumps(names))
        with FakeNode(folder / "state", build) as node:
            node.write(
                [
                    type(gpu)(
                        uuid=gpu.uuid,
                        pci=gpu.pci,
                        minor=gpu.minor,
                        total=80 * GiB,
                        processes=tuple(
                            FakeProcess(pid, 64 * MiB, sm=1)
                            for pid in pids[index * size.processes : (index + 1) * size.processes]
                        ),
                    )
                    for index, gpu in enumerate(gpus(size.gpus))
                ]
            )
            yield node, folder / "names.json"
    finally:
        holder.communicate("\n", timeout=60)
        ledger.clear()
