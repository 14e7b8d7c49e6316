"""
How long it takes from an excess to its end, step by step, on a real cluster. Figures, no verdict.

    PYTHONPATH=tests python -m bench.acting [TIMES]

In: how often on each of four GPUs, by default 5. Out: a table in Markdown, first for `evict`, then for `kill`.

Law: the installed daemon has the shipped rights, and a round every 5 s. The grace is the shortest that there is, and
`trigger: limit` stands for a neighbour in need. The time of each step comes from its source: the workload's file, the
daemon's log, its journal, the kernel (a pidfd). Excesses begin at moments that are spread over an interval.
"""

from __future__ import annotations

import asyncio
import json
import os
import select
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import astuple, dataclass, fields
from datetime import datetime
from pathlib import Path
from typing import Any

from bench import account
from cluster import requirements
from cluster.bed import Bed
from cluster.client import ApiError, Object, until
from cluster.manifests import pod
from cluster.stage import NAMESPACE, RUN, Stage, spec
from daemon.running import Daemon
from daemon.running import until as becomes
from driver.node import GiB, gpus

LANES = 4
LIMIT = "nvidia.com/container.main.gpu-memory.limit"
CONSENT = {"gpusteward.io/mode": "enforce"}
TEAM = "team"
PODS = f"/api/v1/namespaces/{TEAM}/pods"
WARN_AFTER, GRACE, INTERVAL = 15.0, 30.0, 5.0
WITHIN = 180.0
CARDS = gpus(LANES)
OFFERED = {
    f"nvidia.com/lane-{number}": [f"{one.uuid}::{replica}" for replica in range(4)] for number, one in enumerate(CARDS)
}
UNLIMITED = dict.fromkeys(("node", "namespace", "workload"), "1000/10m")


@dataclass(frozen=True, slots=True)
class Course:
    """Unix seconds of one excess."""

    exceeded: float
    seen: float
    told: float
    decided: float
    sent: float
    answered: float
    gone: float
    verified: float


STEPS = (
    ("exceeds its limit → is seen (a round each 5 s)", 0.0),
    ("→ is told", WARN_AFTER),
    ("→ it is decided", GRACE),
    ("→ the intent is on disk", 0.0),
    ("→ last look, call, answer", 0.0),
    ("→ the process is gone (the pod's own grace: 1 s)", 0.0),
    ("→ its memory was seen free, twice", 0.0),
)
"""Each step between two moments of a course, and what of it is waited for by configuration."""


class Lane:
    """One GPU, on which one pod after the other exceeds its limit."""

    def __init__(self, stage: Stage, daemon: Daemon, number: int, journal: Path) -> None:
        self._stage, self._daemon, self._number, self._journal = stage, daemon, number, journal
        self.courses: list[Course] = []

    async def run(self, rung: str, times: int) -> None:
        """Let so many pods exceed their limits, one after the other, and each at another moment between two rounds."""
        await asyncio.sleep(self._number * (WARN_AFTER + GRACE + 3 * INTERVAL) / LANES)
        for turn in range(times):
            phase = (turn * LANES + self._number + 0.5) / (times * LANES)
            self.courses.append(await self._once(f"{rung}-{self._number}-{turn}", phase * INTERVAL))

    async def _once(self, name: str, after: float) -> Course:
        made = await start(self._stage, name, self._number)
        uid = made["metadata"]["uid"]

        async def judged() -> bool:
            return any(one["pod"] == name and one["state"] == "ok" for one in await self._standings())

        await until(judged, f"{name} to be judged")  # a round was just made
        await asyncio.sleep(after)
        workload = self._stage.bed.driver.workload(uid)
        ending = asyncio.create_task(asyncio.to_thread(end_of, host_pid(uid)))
        await asyncio.to_thread(workload.command, f"alloc visible {3 * GiB}")
        exceeded = (self._stage.bed.driver.folder / "says" / uid).stat().st_mtime

        async def over() -> list[dict[str, Any]] | None:
            found = self._records(uid)
            return found if found and found[-1]["record"] == "ended" else None

        records = await until(over, f"the end of {name}", WITHIN)
        with suppress(ApiError):  # an evicted one is gone
            await self._stage.api.delete(f"{PODS}/{name}", gracePeriodSeconds=0)
        assert [one["record"] for one in records] == ["intent", "sent", "acked", "ended"], records
        assert records[-1]["result"] == "verified", records[-1]
        logged = {line["event"]: at(line) for line in lines(self._daemon) if line.get("pod") == name}
        return Course(
            exceeded,
            logged["enforcer.over"],
            logged["enforcer.grace"],
            logged["enforcer.acting"],
            records[1]["time"],
            records[2]["time"],
            await ending,
            records[-1]["time"],
        )

    async def _standings(self) -> list[dict[str, Any]]:
        snapshot = await asyncio.to_thread(self._daemon.snapshot)
        found: list[dict[str, Any]] = snapshot["policy"]["standings"]
        return found

    def _records(self, uid: str) -> list[dict[str, Any]]:
        """What the journal has of this pod's action, in order."""
        told = [json.loads(line) for line in self._journal.read_bytes().split(b"\n")[:-1]]
        mine = {one["decision"] for one in told if one["record"] == "intent" and one["action"]["pod_uid"] == uid}
        return [one for one in told if one.get("decision") in mine]


def end_of(pid: int) -> float:
    """Wait for the end of a process; Unix seconds."""
    fd = os.pidfd_open(pid)
    try:
        select.select([fd], [], [])
        return time.time()
    finally:
        os.close(fd)


def host_pid(uid: str) -> int:
    """Find the workload of a pod on the host."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if uid in (folder / "cgroup").read_text() and (folder / "comm").read_text() == "workload\n":
                return int(folder.name)
        except OSError:
            continue
    raise LookupError(uid)


def lines(daemon: Daemon) -> list[dict[str, Any]]:
    """Read the daemon's log."""
    return [json.loads(line) for line in list(daemon.lines) if line.startswith("{")]


def at(line: dict[str, Any]) -> float:
    """Read when a line was written."""
    return datetime.fromisoformat(line["timestamp"]).timestamp()


async def start(stage: Stage, name: str, lane: int, *commands: str) -> Object:
    """Run a pod that holds 1 GiB and declares 2."""
    made = pod(name, spec(f"alloc visible {GiB}", *commands, resource=f"nvidia.com/lane-{lane}"))
    made["metadata"]["annotations"] = {LIMIT: "2Gi"}
    await stage.api.create(PODS, made)
    ready = await stage.api.ready_pod(TEAM, name)
    await asyncio.to_thread(stage.bed.driver.workload(ready["metadata"]["uid"]).ready)
    return ready


async def course(stage: Stage, rung: str, times: int) -> list[Course]:
    """Measure one action of the ladder."""
    folder = stage.folder / rung
    folder.mkdir(mode=0o700)
    policy = {
        "ladder": ["notify", rung],
        "trigger": "limit",
        "warn_after": f"{WARN_AFTER:.0f}s",
        "grace": f"{GRACE:.0f}s",
        "hold_off": "0s",
        "spacing": f"{INTERVAL:.0f}s",
        "budgets": UNLIMITED,
        "protect": {"bare_pods": False},
        "stop_file": str(folder / "stop"),
        "journal": str(folder / "journal"),
    }
    (folder / "config.yaml").write_text(json.dumps({"policy": policy}))
    pace = (f"--sampling.interval={INTERVAL:.0f}s", "--sampling.fast-interval=1s")
    with stage.daemon(f"--config={folder / 'config.yaml'}", *pace, "--mode=enforce", command=RUN) as daemon:

        def armed() -> bool:
            return any(line["event"] == "enforcer.armed" for line in lines(daemon))

        await asyncio.to_thread(becomes, armed, "the daemon to be armed", daemon, WITHIN)
        lanes = [Lane(stage, daemon, number, folder / "journal") for number in range(LANES)]
        async with asyncio.TaskGroup() as tasks:
            for lane in lanes:
                tasks.create_task(lane.run(rung, times))
    return [one for lane in lanes for one in lane.courses]


def table(courses: Sequence[Course]) -> None:
    """Print how long each step took beyond what was configured."""
    print("| step | by configuration | beyond that: p50 | p95 | most |")
    print("|---|---|---|---|---|")
    moments = list(map(astuple, courses))
    assert len(STEPS) == len(fields(Course)) - 1
    for place, (step, configured) in enumerate(STEPS):
        row(step, configured, [one[place + 1] - one[place] - configured for one in moments])
    waited = sum(configured for _, configured in STEPS)
    row("in all", waited, [one[-1] - one[0] - waited for one in moments])


def row(step: str, configured: float, seconds: Sequence[float]) -> None:
    """Print a line of the table."""
    ordered = sorted(seconds)
    p95 = ordered[max(0, round(0.95 * len(ordered)) - 1)]
    told = (f"{one:.2f} s" for one in (statistics.median(ordered), p95, ordered[-1]))
    print(f"| {step} | {f'{configured:.0f} s' if configured else ''} | {' | '.join(told)} |", flush=True)


async def main(times: int) -> None:
    """Measure and print."""
    if lacking := requirements.missing(node=True):
        sys.exit("; ".join(lacking))
    with tempfile.TemporaryDirectory() as name, Bed(gpus=CARDS, inventory=OFFERED) as bed:
        async with bed.api() as api:
            await account.grant(api)
            await api.create("/api/v1/namespaces", {"metadata": {"name": TEAM, "labels": CONSENT}})
            stage = Stage(bed, api, Path(name))
            await stage.enforcing()
            await stage.may_evict(TEAM)
            await stage.guard()
            bystanders = [await start(stage, f"bystander-{number}", number) for number in range(LANES)]
            async with stage.as_pod():
                for rung in ("evict", "kill"):
                    courses = await course(stage, rung, times)
                    print(f"\n`{rung}`, {len(courses)} times\n")
                    table(courses)
            for one in bystanders:
                now = await api.get(f"{PODS}/{one['metadata']['name']}")
                assert now["metadata"]["uid"] == one["metadata"]["uid"], "nobody else is touched"
                assert now["status"]["containerStatuses"][0]["restartCount"] == 0, "nobody else is touched"


if __name__ == "__main__":
    assert NAMESPACE == account.NAMESPACE
    asyncio.run(main(int(sys.argv[1]) if sys.argv[1:] else 5))
