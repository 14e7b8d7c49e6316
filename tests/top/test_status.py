"""What stands above the table: its age, and what is wrong."""

from __future__ import annotations

import msgspec

from builders import device, gpu, snapshot
from exporter.model import Utilization
from exporter.top.fetch import parse
from exporter.top.rows import Tone
from exporter.top.table import Table, table
from serving.node import busy
from serving.table import judged, served, shown


def status(found: Table) -> str:
    return "  ".join(part for part, _ in found.status)


def test_how_old_it_is_stands_on_top() -> None:
    """Live, incomplete, or stale: from three intervals on, counted on while no newer one comes."""
    fine = snapshot(device(gpu(utilization=Utilization(busy=0.5)), attributed=0), round=7)
    assert status(shown(fine)) == "gpu-node-1  live, 1s ago  round 7  gpusteward run 0.1.0"
    assert status(shown(fine, judged())) == "gpu-node-1  live, 1s ago  mode enforce  round 7  gpusteward run 0.1.0"
    assert status(shown(busy())).startswith("gpu-node-1  INCOMPLETE, 1s ago")
    assert status(shown(fine, waited=14.0)).startswith("gpu-node-1  live, 15s ago")
    old = shown(fine, waited=14.1)
    assert status(old).startswith("gpu-node-1  STALE, 15s old")
    assert old.warnings == (("stale: the newest round is 15s old. What is shown may be gone.", Tone.BAD),)
    assert {row.tone for row in old.rows} == {row.named for row in old.rows} == {Tone.SOFT}


def test_a_daemon_that_is_away_is_said_to_be_away() -> None:
    """Why no newer round came stands on top; what came last stays, and is marked."""
    away = shown(busy(), trouble="http://node-1:9478: connection refused")
    assert status(away).startswith("gpu-node-1  STALE, 1s old")
    assert away.warnings[0] == ("daemon: http://node-1:9478: connection refused", Tone.BAD)
    assert len(away.rows) == len(shown(busy()).rows)


def test_faults_stand_on_top() -> None:
    """What makes the round incomplete first; GPUs by their index; open breakers, and a PID domain without proof."""
    breakers = [{"breaker": "blast_radius", "detail": "9 of 10 pods", "by_itself": False}]
    found = shown(busy(), judged(breakers=breakers))
    assert found.warnings == (
        ("breaker blast_radius: 9 of 10 pods. Nothing is acted on while it is open.", Tone.BAD),
        ("devices: GPU 4 fell off the bus (GPU 4)", Tone.BAD),
        ("names: names are remembered ones", Tone.WARN),
    )
    unproven = table(msgspec.structs.replace(parse(served(busy())), pid_domain_proven=False)).warnings
    assert unproven[0][0].startswith("host: the driver's process numbers are not proven")
