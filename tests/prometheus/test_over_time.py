"""
The counters of use over time, as a real Prometheus adds them up, against what the processes really held.

What comes in: real processes of the fake driver, whose memory and load change all the time, and a daemon that is
killed half-way. What goes out: `increase()` over 200 scrapes. What is expected is computed from the commands alone:
what was asked of each process, and when. No code of ours takes part in it.
"""

from __future__ import annotations

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from random import Random

import pytest

from cluster.processes import free_port
from containers.cgroupfs import Ledger, below, move, new_token
from daemon.running import Daemon
from driver.node import FakeNode, GiB, MiB, Workload, gpus
from prometheus.scraping import Prometheus, scraping

pytestmark = pytest.mark.prometheus

SCRAPES = 200
EVERY = "200ms"
TOTAL, RESERVED, MANAGED, OF_HOST = 80 * GiB, 600 * MiB, 3 * GiB, 2 * GiB
BASE, BASE_PERCENT = 11 * GiB, 35
PODS = ("trainer", "notebook")
MOST_WRONG = 0.01

Changes = list[tuple[float, float]]
"""A value that changes in steps: Unix time, and the value from then on."""


@dataclass
class Tenant:
    """
    Two processes in a container, and all that they did: bytes, and their share of the SMs.

    One keeps what it has from the beginning; the other takes some memory and gives it back, in turn.
    """

    steady: Workload
    moving: Workload
    memory: Changes = field(default_factory=list)
    sm: Changes = field(default_factory=list)

    def begin(self) -> None:
        """Take the memory that stays."""
        self.steady.alloc(0, BASE, sm=BASE_PERCENT)
        self._do(0, 0, self.moving.free)

    def change(self, size: int, percent: int) -> None:
        """Hold so much more than the base, and be so much busier; or no more than the base, if it did before."""
        if self.memory[-1][1] > BASE:
            self._do(0, 0, self.moving.free)
        else:
            self._do(size, percent, lambda: self.moving.alloc(0, size, sm=percent))

    def _do(self, size: int, percent: int, command: Callable[[], object]) -> None:
        began = time.time()
        command()
        moment = (began + time.time()) / 2
        self.memory.append((moment, BASE + size))
        self.sm.append((moment, (BASE_PERCENT + percent) / 100))


def integral(changes: Changes, since: float, until: float) -> float:
    """Sum up a value over a time."""
    steps = pairwise([*changes, (until, 0.0)])
    return sum(max(0.0, min(end, until) - max(at, since)) * value for (at, value), (end, _) in steps)


@pytest.fixture
def tenants(fake_node: FakeNode, tmp_path: Path) -> Iterator[dict[str, Tenant]]:
    """Two containers that share a GPU with a process of the host; `names.json` has their names."""
    if os.geteuid() != 0:
        why = "only root can make the cgroups of containers"
        pytest.fail(why) if os.environ.get("CI") == "true" else pytest.skip(why)
    fake_node.write(gpus(1, total=TOTAL, reserved=RESERVED, other=MANAGED), sample_period_us=20_000)
    ledger = Ledger(new_token())
    ledger.open()

    def started(name: str, cgroup: str) -> Workload:
        job = fake_node.spawn(name=name)
        ledger.make(cgroup, roots=ledger.mounts.kubelet[:1])
        move(job.pid, below(ledger.mounts.kubelet[0], cgroup))
        return job

    try:
        started("daemon", "/system.slice/of-the-host.service").alloc(0, OF_HOST)
        found, names = {}, []
        for name in PODS:
            pod, container = str(uuid.uuid4()), uuid.uuid4().hex * 2
            cgroup = f"/kubepods/burstable/pod{pod}/{container}"
            found[name] = Tenant(started(name, cgroup), started(f"{name}-worker", cgroup))
            ids = {"pod_uid": pod, "container_id": container}
            names.append({"namespace": "team-a", "pod": name, "container": "main", **ids})
        (tmp_path / "names.json").write_text(json.dumps(names))
        yield found
    finally:
        fake_node.close()
        ledger.clear()


@dataclass(frozen=True)
class Scrapes:
    """
    All scrapes of one daemon and its successor.

    Attributes:
        first, last: Unix times of the first scrape and of the last.
        began, ended: when the rounds began that these two scrapes show.
        killed, back: the same of the last scrape before the end of the daemon, and the first reading after it.

    """

    prometheus: Prometheus
    first: float
    last: float
    began: float
    ended: float
    killed: float
    back: float

    @classmethod
    def of(cls, prometheus: Prometheus) -> Scrapes:
        """Find them by the counter that falls once, when the daemon starts anew."""
        names = ("snapshot_timestamp_seconds", "device_observed_seconds_total", "device_unknown_seconds_total")
        columns = []
        for name in names:
            (series,) = prometheus.get("/api/v1/query", query=f"gpusteward_{name}[5m]")["result"]
            columns.append({float(at): float(value) for at, value in series["values"]})
        rounds, observed, unknown = columns
        times = sorted(rounds.keys() & observed.keys() & unknown.keys())
        falls = [(before, after) for before, after in pairwise(times) if observed[after] < observed[before]]
        assert len(falls) == 1, f"a counter falls when the daemon starts anew, and never else: {falls}"
        ((before, after),) = falls
        back = rounds[after] - observed[after] - unknown[after]
        first, last = times[0], times[-1]
        return cls(prometheus, first, last, rounds[first], rounds[last], rounds[before], back)

    def increase(self, name: str, by: str) -> dict[str, float]:
        """Ask Prometheus for the increase over all scrapes, by a label."""
        span = round((self.last - self.first) * 1000) + 1
        query = f"sum by ({by}) (increase(gpusteward_{name}[{span}ms]))"
        found = self.prometheus.get("/api/v1/query", query=query, time=f"{self.last:.3f}")["result"]
        return {one["metric"].get(by, ""): float(one["value"][1]) for one in found}

    def expected(self, changes: Changes) -> float:
        """Compute the same from what the processes did, less the time without a daemon."""
        return integral(changes, self.began, self.ended) - integral(changes, self.killed, self.back)


def test_increase_is_what_the_processes_held_less_the_outage(
    fake_node: FakeNode, tenants: dict[str, Tenant], tmp_path: Path
) -> None:
    """
    Over 200 scrapes with a SIGKILL in the middle, the counters are within 1 % of what was really held and used.

    The parts of the device add up to its memory x the observed time, and the containers to their part.
    """
    random, port = Random(23), free_port()
    flags = (
        "--devices=nvml",
        "--sampling.interval=200ms",
        "--sampling.fast-interval=200ms",
        "--log.format=json",
        "--node.host-root=/",
        f"--names.file={tmp_path}/names.json",
        f"--web.listen-address=127.0.0.1:{port}",
    )
    for tenant in tenants.values():
        tenant.begin()
    with ExitStack() as stack:

        def start() -> Daemon:
            daemon = stack.enter_context(Daemon(*flags, env=fake_node.environment()))
            daemon.until(lambda seen: seen["complete"] and len(seen["containers"]) == len(PODS), "both containers")
            return daemon

        daemon = start()
        often = {"scrape_interval": EVERY, "scrape_timeout": EVERY}
        prometheus = stack.enter_context(scraping(f"127.0.0.1:{port}", tmp_path, often))
        killed = False
        while (answered := float(next(iter(prometheus.query("sum_over_time(up[5m])").values())))) < SCRAPES:
            if answered > SCRAPES / 2 and not killed:
                daemon.stop(signal.SIGKILL)
                daemon, killed = start(), True
            tenant = random.choice(list(tenants.values()))
            tenant.change(random.randrange(1, 6) * GiB, random.randrange(5, 20))
            time.sleep(random.uniform(0.5, 2.0))  # the processes hold what they have; no condition is awaited
        scrapes = Scrapes.of(prometheus)

        observed = scrapes.increase("device_observed_seconds_total", "node")["test-node"]
        unread = scrapes.increase("device_unknown_seconds_total", "node")["test-node"]
        alive, outage = scrapes.expected([(0.0, 1.0)]), scrapes.back - scrapes.killed
        print(f"{observed + unread:.2f} of {alive:.2f} s, of it {unread:.2f} s unread; outage {outage:.2f} s")
        assert observed + unread == pytest.approx(alive, rel=MOST_WRONG / 2) and outage > 0

        parts = scrapes.increase("device_memory_byte_seconds_total", "part")
        memory, sm = (scrapes.increase(f"container_{name}_seconds_total", "pod") for name in ("memory_byte", "sm"))
        assert sum(parts.values()) == pytest.approx(TOTAL * observed, rel=1e-4)
        assert parts["containers"] == pytest.approx(sum(memory.values()), rel=1e-4)
        assert parts["reserved"] == pytest.approx(RESERVED * observed, rel=1e-4) and parts["ghost"] == 0

        # On a busy machine a round comes too late, or memory moves between the reading of the device and that of its
        # lists. What such a round read is unknown, and the daemon says so: in all parts alike.
        read = observed / (observed + unread)
        used = sum(parts[part] for part in ("containers", "host", "unattributed", "unknown"))
        known = read * (1 - parts["unknown"] / used)
        print(f"read {read:.3%}, known {known:.3%} of it")
        assert known > 0.5
        wrong = MOST_WRONG + 0.2 * (1 - known)  # what was read is not what was not
        assert parts["host"] == pytest.approx(OF_HOST * alive * known, rel=wrong)
        assert parts["unattributed"] == pytest.approx(MANAGED * alive * known, rel=wrong)
        for name, tenant in tenants.items():
            held, busy = scrapes.expected(tenant.memory) * known, scrapes.expected(tenant.sm) * read
            print(f"{name}: memory {memory[name] / held - 1:+.2%}, SM {sm[name] / busy - 1:+.2%}")
            assert memory[name] == pytest.approx(held, rel=wrong)
            assert sm[name] == pytest.approx(busy, rel=wrong)
