"""
The action `kill` as a process of its own, for test_kill.py: with few rights, in a container, in its own namespace.

In: a container as it stands in cgroups. Out: one line of JSON with the answers of `kill`.
Law: nothing is waited for that a test could not see; the kernel itself gives a number to another process.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

from containers.cgroupfs import below, hierarchies, move
from enforcer.actions.interface import Answer
from enforcer.actions.kill.actuator import Kill
from enforcer.actions.kill.pidfds import Hold, Inits, unavailable
from enforcer.actions.victim import Victim
from enforcer.journal.records import Planned
from enforcer.policy.history import Action
from enforcer.policy.holder import CaseKey
from enforcer.policy.vocabulary import Rung
from exporter.base.cgroup_owner import USUAL
from exporter.model import ContainerId, DeviceKey, GpuUuid, PodUid

PROC = Path("/proc")
LAST_PID = Path("/proc/sys/kernel/ns_last_pid")


def action(victim: Victim, *, since: float | None = None) -> Action:
    """What the policy decides about a container; `since` None: its excess was seen just now."""
    uid, container_id = victim
    return Planned(
        Rung.KILL,
        CaseKey(uid, "main", container_id, "", "GPU-1"),
        DeviceKey(GpuUuid("GPU-1")),
        uid,
        "team-a",
        "job",
        "main",
        container_id,
        ("team-a", "Job", "job"),
        12 * 2**30,
        8 * 2**30,
        "hami resource",
        time.monotonic() if since is None else since,
        dry=False,
    ).restored()


def stat(pid: int) -> list[str]:
    """Read the fields of /proc/<pid>/stat after the name: state, parent and so on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def child_of(pid: int) -> int:
    """Wait for the child of a process."""
    children, deadline = Path(f"/proc/{pid}/task/{pid}/children"), time.monotonic() + 10.0
    while not (found := children.read_text().split()):
        assert time.monotonic() < deadline, f"{pid} has no child"
    return int(found[0])


def join(cgroup: str, pid: int) -> None:
    """Put a process into a cgroup, in each hierarchy of the kubelet."""
    for root in hierarchies().kubelet:
        move(pid, below(root, cgroup))


def said(answer: Answer | None) -> list[str] | None:
    return None if answer is None else [answer.heard, answer.detail]


async def ask(victim: Victim) -> Any:
    """Whether `kill` is available; why the victim is not held; what is heard before and with SIGTERM."""
    kill = Kill(PROC, USUAL, trusted=True)
    await kill.hold([victim])
    answers = [said(kill.preflight(action(victim))), said(await kill.act(action(victim), "1"))]
    return [(why := unavailable(PROC, trusted=True)) and str(why), sorted(kill.obstacles.values()), answers]


class Init:
    """The first process of a PID namespace, in a cgroup. It has no handler for SIGTERM."""

    def __init__(self, cgroup: str) -> None:
        self._unshare = subprocess.Popen(["unshare", "--pid", "--fork", "sleep", "600"])
        self.pid = child_of(self._unshare.pid)
        join(cgroup, self.pid)

    def replaced(self, cgroup: str) -> Init:
        """End it, and give its number to another one."""
        self.end()
        LAST_PID.write_text(str(self.pid - 2))  # the next one is `unshare`
        innocent = Init(cgroup)
        assert innocent.pid == self.pid
        os.kill(innocent.pid, 0)  # by its number a signal would arrive
        return innocent

    @property
    def lives(self) -> bool:
        return self._unshare.poll() is None and stat(self.pid)[0] != "Z"

    def end(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        self._unshare.wait()


async def reuse(victim: Victim, mine: str, others: str) -> Any:
    """
    Hold an init, end it, and give its number to others; in a PID namespace that no other process uses.

    Out: first, whether it was held, what SIGTERM met, and whether it had ended by then. Then, for each innocent: what
    was heard, whether the victim is said to have ended, and whether the innocent lives.
    """
    early, late, running = Kill(PROC, USUAL, trusted=True), Kill(PROC, USUAL, trusted=True), Init(mine)
    asked = action(victim)
    for kill in (early, late):
        await kill.hold([victim])
    began = [early.held == late.held == {victim}, (await early.act(asked, "1")).heard, await early.ended(asked)]
    told: list[Any] = []
    hears = Inits.hears

    def meanwhile(inits: Inits, hold: Hold) -> bool:
        nonlocal running
        running = running.replaced(others)
        return hears(inits, hold)

    with patch.object(Inits, "hears", meanwhile):  # between the last look and the signal
        answer = await late.act(asked, "2")
    told.append([[answer.heard], await late.ended(asked), running.lives])
    for cgroup in (others, mine):  # another container's; once more the very same
        running = running.replaced(cgroup)
        answers = [early.preflight(asked), await early.act(asked, "3"), await early.insist(asked, "1")]
        told.append([[answer.heard for answer in answers if answer], await early.ended(asked), running.lives])
    running.end()
    return [began, told]


def main(does: str, uid: str, container_id: str, *cgroups: str) -> None:
    victim = PodUid(uid), ContainerId(container_id)
    told = asyncio.run(ask(victim) if does == "ask" else reuse(victim, *cgroups))
    print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
