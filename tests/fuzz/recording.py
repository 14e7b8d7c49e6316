"""
Fuzz target: a recording, which a stranger may have sent with a bug report.

In: what happens to the file, then its text, plain or compressed, or values for a good one. The promise:
- A file is read, or refused with a `RecordingError` of printable lines, and nothing else.
- What was read, written and read again, is the same.
- A file that ends anywhere has the rounds that were whole until there, and says that its end is missing.
- The rounds play: each has a snapshot in which no part of the accounts is negative. Where all parts are known, their
  sum is what the device holds.
"""

import json
import os
import zlib
from collections.abc import Iterator
from contextlib import suppress
from copy import deepcopy
from functools import cache
from pathlib import Path
from typing import Any

import structlog.testing

from builders import GIB, gpu, leaf, memory
from exporter.base.problem import lines
from exporter.config import Arguments, Config, load
from exporter.model import (
    Container,
    ContainerId,
    ContainerKind,
    GpuProcess,
    GpuSample,
    HostProcess,
    HostSample,
    Inventory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    ProcessKind,
    Snapshot,
)
from exporter.recording import FORMAT, Header, HostRead, Reading, RecordedRound, RecordingError, Writing
from exporter.recording.replay import snapshots
from fuzz import scratch
from fuzz.drawing import Draw

VALUES: tuple[Any, ...] = (
    0, -1, 1, 2, 5, 7, 2**31, 2**62, 2**63 - 1, 2**64, -(2**63), 0.5, -0.5, 1e308, -1e308, 5e-324, None, True, False,
    "", "x", "a\nb", "\x1b[31m", "\u2028", "\ud800", "GPU-00000000-1111-2222-3333-444444444444", "nvidia", "1" * 5000,
    [], {}, [[]], [None], {"": None}, ["compute", "mps"], [5, 6], {"x": 1},
)  # fmt: skip
"""Values that stand where others were."""
MOST_ROUNDS = 4
"""Rounds that are played of one input."""
POD, CONTAINER = PodUid("2c48913c-b29f-11e7-9350-020968147796"), ContainerId("c" * 64)


def check(data: bytes) -> None:
    """Read the file, or a part of a good one."""
    draw = Draw(data)
    how = draw.below(8)
    if how == 0:
        _check_cut(good(), draw.below(65536), packed=bool(draw.below(2)))
        return
    text = draw.rest() if how <= 2 else _edited(draw)
    content = _packed(text) if how == 1 else text
    found = _rounds(content)
    if found is not None:
        _check_again(*found)
    if how >= 6:
        _check_played(content)


def _edited(draw: Draw) -> bytes:
    """Write other values into a good recording, and lose or double some lines."""
    found = [json.loads(line) for line in good().splitlines()]
    while draw:
        line = draw.below(256) % len(found)
        match draw.below(8):
            case 0 if len(found) > 1:
                del found[line]
            case 1:
                found.insert(line, deepcopy(found[draw.below(256) % len(found)]))
            case _:
                holders = list(_holders(found[line]))
                holder, key = holders[draw.below(65536) % len(holders)]
                holder[key] = deepcopy(draw.one_of(VALUES))
    return b"".join(json.dumps(line).encode() + b"\n" for line in found)


def _holders(data: Any) -> Iterator[tuple[Any, Any]]:
    """Yield each place of a value: its mapping or list, and its key."""
    for key in list(data) if isinstance(data, dict) else range(len(data)):
        yield data, key
        if isinstance(data[key], dict | list):
            yield from _holders(data[key])


def _packed(text: bytes) -> bytes:
    return zlib.compress(text, 1, wbits=16 + zlib.MAX_WBITS)


class _File:
    """A file in memory, with a path of its own."""

    def __init__(self, content: bytes = b"") -> None:
        self.descriptor = os.memfd_create("recording")
        os.write(self.descriptor, content)
        self.path = Path(f"/proc/self/fd/{self.descriptor}")

    def __enter__(self) -> Path:
        return self.path

    def __exit__(self, *_error: object) -> None:
        os.close(self.descriptor)


def _rounds(content: bytes) -> tuple[Header, list[RecordedRound], str] | None:
    try:
        with _File(content) as path, Reading(path) as reading:
            return reading.header, list(reading), reading.torn
    except RecordingError as error:
        assert all(line.isprintable() for line in lines("gpusteward", error))
        assert len(str(error)) < 2000, "a refusal that repeats too much"
        return None


def _written(header: Header, recorded: list[RecordedRound]) -> bytes:
    path = scratch.folder() / "r.jsonl"
    path.unlink(missing_ok=True)
    with Writing(path, header) as file:
        for one in recorded:
            file.add(one)
    return path.read_bytes()


def _check_again(header: Header, recorded: list[RecordedRound], torn: str) -> None:
    assert torn.isprintable()
    again = _rounds(_written(header, recorded))
    assert again == (header, recorded, ""), "written again, another recording"


def _check_cut(content: bytes, at: int, *, packed: bool) -> None:
    whole = _rounds(content)
    assert whole is not None and not whole[2]
    if packed:
        content = _packed(content)
    part = content[: at % (len(content) + 1)]
    found = _rounds(part)
    if found is None:
        assert packed or b"\n" not in part, "a file that is cut behind its header is refused"
        return
    assert found[0] == whole[0]
    assert found[1] == whole[1][: len(found[1])], "a round was invented"
    assert found[2] or len(part) == len(content) or part.endswith(b"\n"), "the missing end is not reported"


@cache
def _config() -> Config:
    return load(Arguments())


async def _played(content: bytes) -> list[Snapshot]:
    found: list[Snapshot] = []
    with _File(content) as path, Reading(path) as reading, suppress(RecordingError):
        async for snapshot in snapshots(reading, _config()):
            found.append(snapshot)
            if len(found) == MOST_ROUNDS:
                break
    return found


def _check_played(content: bytes) -> None:
    try:
        with structlog.testing.capture_logs():
            found = scratch.loop().run_until_complete(_played(content))
    except RecordingError:
        return
    for snapshot in found:
        for device in snapshot.devices:
            account = device.account
            parts = (account.attributed, account.ghost, account.host, account.unattributed)
            assert all(part is None or part >= 0 for part in (*parts, account.clamped)), account
            if account.memory is not None and account.closes and None not in parts:
                total = sum(part for part in parts if part is not None)
                assert total == account.memory.used + account.clamped, account


@cache
def good() -> bytes:
    """Write a recording of three rounds: a GPU, a process of a pod, and one of the host."""
    owner = Owner(((POD, CONTAINER),))
    processes = {
        pid: HostProcess(ProcessKey(pid, 77), alive=True, owner=each) for pid, each in ((5, owner), (6, Owner()))
    }
    read = HostRead(
        frozenset(processes), HostSample(processes, living=frozenset({owner}), pid_domain_proven=True), want_living=True
    )
    pods = {POD: Pod(POD, "team", "train-0", annotations={"nvidia.com/gpumem": "4096"})}
    containers = (Container(POD, "main", CONTAINER, ContainerKind.REGULAR),)
    inventory = Inventory(pods=pods, containers=containers, known=True, live=True)
    recorded = []
    for number in range(1, 4):
        card = gpu(0, memory=memory(used=(5 + number) * GIB))
        held = tuple(GpuProcess(leaf(0), pid, frozenset({ProcessKind.COMPUTE}), number * GIB) for pid in processes)
        recorded.append(
            RecordedRound(
                number,
                1e9 + 5 * number,
                5.0 * number,
                0.1,
                None,
                {card.uuid: 0},
                (GpuSample(card, 1e9 + 5 * number, held),),
                (),
                (read,),
                inventory,
            )
        )
    return _written(Header(gpusteward_recording=FORMAT, program="1", node="n", started_at=1e9, interval=5.0), recorded)
