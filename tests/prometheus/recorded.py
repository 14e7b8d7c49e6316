"""
The series that our rules record, for a Prometheus whose past was written by hand.

In: rules, a folder of blocks. Out: the same rules for a short-lived Prometheus; blocks with what they would have
recorded.
Law: promtool evaluates the rules themselves; nothing is computed here.
"""

from __future__ import annotations

import subprocess
from pathlib import Path

import yaml

from alerts.written import RULES
from prometheus.scraping import program, serving

DEEP = 4
"""Devices are recorded from what is scraped, containers from devices, idle time from that, workloads from all."""


def at_once(folder: Path) -> Path:
    """Write the rules that record, to be evaluated as often as all else: in five minutes a test is over."""
    groups = [group for path in RULES for group in yaml.safe_load(path.read_text())["groups"]]
    recording = [
        {"name": group["name"], "rules": [rule for rule in group["rules"] if "record" in rule]} for group in groups
    ]
    path = folder / "recording.yaml"
    path.write_text(yaml.safe_dump({"groups": [group for group in recording if group["rules"]]}))
    return path


def record(data: Path, folder: Path, start: int, end: int) -> None:
    """Add what the rules would have recorded in this time, at their own intervals, else each minute."""
    # Blocks of a week instead of two hours: promtool makes one for each rule.
    for number in range(DEEP):
        made = folder / f"recorded-{number}"
        with serving(data, folder) as running:
            command: list[str | Path] = [
                program("promtool"),
                "tsdb",
                "create-blocks-from",
                "--max-block-duration=162h",
                "rules",
            ]
            command += [f"--start={start}", f"--end={end}", "--eval-interval=60s", f"--url={running.url}"]
            done = subprocess.run(
                [*command, f"--output-dir={made}", *RULES], capture_output=True, text=True, check=False
            )
        assert done.returncode == 0 and "level=error" not in done.stderr, done.stdout + done.stderr
        for block in made.iterdir():
            block.rename(data / block.name)
