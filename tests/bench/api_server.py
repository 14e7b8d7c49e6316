"""
What the daemons of many nodes cost the API server. Figures, never a verdict.

    PYTHONPATH=tests python -m bench.api_server [NODES ...]

In: numbers of nodes, rising; by default 100, 300 and 1,000. Out: a table in Markdown. Each node is a Node object with
ten pods of 5.5 kB, and a daemon's names at work (see watchers) with their own token.

Law: the server's CPU and memory are the kernel's figures of its process; the requests are those of its audit log. Its
cost without any daemon is measured at the same number of pods. That cost is subtracted, or has a column of its own.
"""

from __future__ import annotations

import asyncio
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from bench import account, simulated_pods
from bench.usage import cpu_seconds, memory
from cluster import requirements, simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, Object, until
from cluster.leftovers import marked
from cluster.manifests import pod_spec

PODS_A_NODE = 10
WORKLOADS = 3  # each daemon asks for these owners once
IDLE_S = 20.0
REST_S = 60.0  # each daemon reads its node once in that time
AWAY_S = 10.0
QUIET = 0.04, 5.0  # of a core, in so many seconds: the server has done what a start made it do
TOO_MANY = 429  # the answer of priority and fairness to what it has no seat for
ROWS = (
    "pods",
    "start, all at once: all live after",
    "CPU for that",
    "requests; of them refused (429); most in a second",
    "at rest: CPU a minute",
    "without daemons",
    "requests a minute",
    "RSS",
    "without daemons",
    "server killed, back after 10 s: all watch again after",
    "CPU for that",
    "requests; of them refused (429); most in a second",
    "most RSS of the new server",
)


@dataclass(frozen=True, slots=True)
class Request:
    """One request of a daemon, from the audit log. A watch is one request."""

    at: float
    verb: str
    resource: str
    code: int


class Server:
    """The API server's process, as the kernel sees it."""

    def __init__(self, bed: Bed) -> None:
        self.bed = bed
        self.find()

    def find(self) -> None:
        """Look for its pid, which changes with each start."""
        named = {pid: Path(f"/proc/{pid}/comm").read_text().strip() for pid in marked(self.bed.token)}
        (self.pid,) = (pid for pid, name in named.items() if name == "kube-apiserver")

    def cpu(self) -> float:
        return cpu_seconds(self.pid)

    def kill(self) -> None:
        self.bed.control_plane.kill_api_server()

    async def start(self) -> None:
        """Start it again, and return when it is ready."""
        await asyncio.to_thread(self.bed.control_plane.start_api_server)
        self.find()

    async def quiet(self, within: float = 60.0) -> None:
        """Wait for a stretch in which it did little."""
        share, stretch = QUIET
        deadline = time.monotonic() + within
        while time.monotonic() < deadline:
            before = self.cpu()
            await asyncio.sleep(stretch)
            if self.cpu() - before < share * stretch:
                return
        print(f"(the server was not quiet after {within:.0f} s)", file=sys.stderr)

    async def cpu_a_minute(self, seconds: float) -> float:
        """CPU seconds a minute, over so many seconds."""
        before, began = self.cpu(), time.monotonic()
        await asyncio.sleep(seconds)
        return 60.0 * (self.cpu() - before) / (time.monotonic() - began)

    def requests(self, since: float, to: float) -> list[Request]:
        """List what the daemons asked for in a stretch of time (seconds since the epoch)."""
        found: dict[str, Request] = {}
        for event in self.bed.control_plane.audit():
            if event["user"].get("username") != account.USER:
                continue
            at = datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp()
            if since <= at <= to:
                status, thing = event.get("responseStatus", {}), event.get("objectRef", {})
                found[event["auditID"]] = Request(at, event["verb"], thing.get("resource", "?"), status.get("code", 0))
        return list(found.values())


class Watchers:
    """The process that stands for the daemons."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.live = 0

    async def read(self) -> None:
        assert self.process.stdout is not None
        async for line in self.process.stdout:
            self.live = int(line)

    async def until_live(self, count: int, within: float = 120.0) -> float:
        """Wait until exactly so many are live; the seconds that it took."""
        began = time.monotonic()

        async def there() -> bool:
            assert self.process.returncode is None, "the watching process ended"
            return self.live == count

        await until(there, f"{count} live (now {self.live})", within)
        return time.monotonic() - began


@asynccontextmanager
async def watching(folder: Path, bed: Bed) -> AsyncIterator[Watchers]:
    """Start the daemons of all nodes that have a folder here."""
    words = sys.executable, "-m", "bench.watchers", str(folder), str(bed.control_plane.port)
    process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
    watchers = Watchers(process)
    reading = asyncio.create_task(watchers.read())
    try:
        yield watchers
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()
        await reading


async def workloads(api: Api) -> list[Object]:
    """Make ReplicaSets, and return the references of their pods; no controller minds them here."""
    found = []
    for number in range(WORKLOADS):
        template = {"metadata": {"labels": {"app": "train"}}, "spec": pod_spec()}
        made = await api.create(
            f"/apis/apps/v1/namespaces/{simulated_pods.NAMESPACE}/replicasets",
            {
                "metadata": {"name": f"train-{number}"},
                "spec": {"replicas": 0, "selector": {"matchLabels": {"app": "train"}}, "template": template},
            },
        )
        named = {"name": made["metadata"]["name"], "uid": made["metadata"]["uid"]}
        found.append({"apiVersion": "apps/v1", "kind": "ReplicaSet", "controller": True, **named})
    return found


async def measure(server: Server, folder: Path, nodes: int) -> tuple[str, ...]:
    """Let as many daemons as there are folders start, rest, and lose their server; the cells of a column."""
    server.kill()
    await server.start()
    await server.quiet()
    start_alone = server.cpu()
    idle, rss_idle = await server.cpu_a_minute(IDLE_S), memory(server.pid).rss

    began, before, wall = time.monotonic(), server.cpu(), time.time()
    async with watching(folder, server.bed) as watchers:
        start_s = await watchers.until_live(nodes)
        await server.quiet()
        start_cpu = server.cpu() - before - idle * (time.monotonic() - began) / 60.0
        started = server.requests(wall, time.time())

        wall = time.time()
        rest = await server.cpu_a_minute(REST_S)
        rested, rss_rest = server.requests(wall, time.time()), memory(server.pid).rss

        server.kill()
        await watchers.until_live(0)
        await asyncio.sleep(AWAY_S)
        wall = time.time()
        await server.start()
        herd_s = await watchers.until_live(nodes)
        await server.quiet()
        herd_cpu = server.cpu() - start_alone
        herd = server.requests(wall, time.time())
        peak = memory(server.pid).peak
        print(
            f"\n{nodes} nodes: the daemons' process took {cpu_seconds(watchers.process.pid):.0f} s of CPU and "
            f"{memory(watchers.process.pid).peak:.0f} MB; a start of the server alone {start_alone:.1f} s of CPU",
            *(f"{name}: {kinds(found)}" for name, found in (("start", started), ("rest", rested), ("herd", herd))),
            sep="\n",
            file=sys.stderr,
            flush=True,
        )
    return (
        f"{nodes * PODS_A_NODE:,}",
        f"{start_s:.0f} s",
        f"{start_cpu:.1f} s",
        counted(started),
        f"{rest:.1f} s",
        f"{idle:.1f} s",
        f"{len(rested) * 60.0 / REST_S:,.0f}",
        f"{rss_rest:.0f} MB",
        f"{rss_idle:.0f} MB",
        f"{herd_s:.0f} s",
        f"{herd_cpu:.1f} s",
        counted(herd),
        f"{peak:.0f} MB",
    )


def counted(requests: list[Request]) -> str:
    """Say how many, how many of them were refused, and how many came in the second that had most."""
    busiest = max(Counter(int(one.at) for one in requests).values(), default=0)
    return f"{len(requests):,}; {sum(one.code == TOO_MANY for one in requests):,}; {busiest:,}"


def kinds(requests: list[Request]) -> str:
    """Count requests by verb, resource and answer."""
    counts = Counter(f"{one.verb} {one.resource} {one.code}" for one in requests)
    return ", ".join(f"{count} {kind}" for kind, count in counts.most_common())


async def main(sizes: list[int]) -> None:
    """Measure each number of nodes and print the table."""
    if lacking := requirements.missing(node=False):
        sys.exit("; ".join(lacking))
    columns: list[tuple[str, ...]] = []
    with tempfile.TemporaryDirectory() as name, Bed(node=False) as bed:
        server, folder = Server(bed), Path(name, "daemons")
        async with bed.api() as api:
            await account.grant(api)
            owners = await workloads(api)
        nodes: list[str] = []
        for size in sizes:
            async with bed.api() as api:  # anew each time: the server was killed in between
                added = await simulated_nodes.add(api, size - len(nodes), prefix=f"of-{size}")
                for node in added:
                    await simulated_pods.add(api, node, PODS_A_NODE, owners=owners)
                nodes += added
                shutil.rmtree(folder, ignore_errors=True)  # tokens last an hour: fresh ones for each size
                await account.mount(bed, api, [folder / node for node in nodes])
            columns.append(await measure(server, folder, size))
    print(f"| nodes | {' | '.join(f'{size:,}' for size in sizes)} |\n|---|{'---|' * len(sizes)}")
    for name, *cells in zip(ROWS, *columns, strict=True):
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    asyncio.run(main(sorted(int(word) for word in sys.argv[1:]) or [100, 300, 1000]))
