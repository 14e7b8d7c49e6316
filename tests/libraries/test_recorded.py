"""A recording of a node with unproven numbers plays as it was: no container is named the second time either."""

import asyncio
from pathlib import Path

import pytest

from exporter.host.procfs import ProcFs
from exporter.kube import NoNames
from exporter.model import Attribution, Snapshot
from exporter.recording import Writing
from exporter.recording.tape import Tape
from exporter.rounds.latest import Latest
from libraries.fake import FakeDevice, FakeProcess, GiB
from libraries.fixtures import Install, Open
from libraries.proc import NULL, Proc
from recordings import SteppedClock, assert_same, header, replayed, sampler


@pytest.mark.parametrize("nodes", [True, False])
async def test_whether_numbers_are_proven_is_recorded(
    nodes: bool, tmp_path: Path, install: Install, sources: Open
) -> None:
    """What the source proved is part of its answer; what it did not is proven or not by the same rules again."""
    host = Proc.made(tmp_path / "host")
    host.node("fake0")
    host.process(4001, "0::/system.slice/a.service", NULL, hidden=not nodes)
    library = install("hgml")
    library.write(FakeDevice(0, "GPU-1", processes=(FakeProcess(4001, GiB),)))
    source = sources(library, proc=host.proc, dev=host.dev)
    tape = Tape(source, ProcFs(host.proc, trusted=True), NoNames())
    live: list[Snapshot] = []

    with Writing(tmp_path / "recording", header()) as file, pytest.raises(asyncio.CancelledError):
        await sampler(tape, SteppedClock(4.0), file, live).run(Latest())

    counted = Attribution.HOST if nodes else Attribution.UNPROVEN
    assert {kind: count for kind, count in live[0].processes.items() if count} == {counted: 1}
    assert_same(await replayed(tmp_path / "recording"), live)
