"""
What the admission policies cost an eviction. Figures, never a verdict.

    PYTHONPATH=tests python -m bench.evictions [PODS ...]

In: numbers of pods in one namespace, rising; by default 250 and 1,000. Out: a table in Markdown. Each pod has 5.5 kB.
The evictions are dry runs, so that the same pod is asked for again: as the daemon, and as an administrator who drains.
Law: the CPU is the kernel's figure of the API server's process, its idle share and all that an eviction takes included.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import time
from collections.abc import Awaitable, Callable

import yaml

from bench import simulated_pods
from bench.api_server import Server
from cluster import simulated_nodes
from cluster.bed import Bed
from cluster.client import Api, ApiError, Object, until
from cluster.theft import ADMISSION, CONSENT, OWN, OWN_NODE, POLICY, SHIPPED, apply, bind, consent, run_pod, stolen

PODS = (250, 1000)
PODS_A_NODE = 50
EVICTIONS = 60
BINDINGS = f"{ADMISSION}/validatingadmissionpolicybindings"
WHERE = simulated_pods.NAMESPACE

Evict = Callable[[], Awaitable[Object]]


def asking(api: Api, name: str, uid: str) -> Evict:
    """Ask as the daemon does, but in vain."""
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": WHERE},
        "deleteOptions": {"preconditions": {"uid": uid}, "dryRun": ["All"]},
    }
    return lambda: api.create(f"/api/v1/namespaces/{WHERE}/pods/{name}/eviction?dryRun=All", body)


async def cost(server: Server, evict: Evict) -> str:
    """Evict again and again: median, ninety-fifth percentile, and the server's CPU each."""
    took, before = [], server.cpu()
    for _ in range(EVICTIONS):
        began = time.perf_counter()
        await evict()
        took.append(1000 * (time.perf_counter() - began))
    cpu = 1000 * (server.cpu() - before) / EVICTIONS
    return f"{statistics.median(took):.0f}, {statistics.quantiles(took, n=20)[-1]:.0f} ms; {cpu:.0f} ms"


async def in_force(evict: Evict, elsewhere: Evict, *, policies: int) -> None:
    """Wait until the server refuses what so many of the policies refuse."""

    async def known() -> bool:
        try:
            await elsewhere()
        except ApiError as error:
            return policies == len((POLICY, OWN_NODE)) and OWN_NODE in error.message
        return policies < len((POLICY, OWN_NODE))

    await until(known, f"{policies} policies to be in force")
    await evict()


async def measure(server: Server, api: Api, daemon: Api, victim: tuple[str, str], other: tuple[str, str]) -> list[str]:
    """The cells of a column."""
    ours, drain, elsewhere = asking(daemon, *victim), asking(api, *victim), asking(daemon, *other)
    kept = [await api.get(f"{BINDINGS}/{name}") for name in (POLICY, OWN_NODE)]
    cells = [await cost(server, ours), await cost(server, drain)]
    await consent(api, WHERE, dict.fromkeys(CONSENT))
    cells.append(await cost(server, drain))
    await consent(api, WHERE, {**CONSENT})
    for policies, binding in ((1, kept[1]), (0, kept[0])):
        await api.delete(f"{BINDINGS}/{binding['metadata']['name']}")
        await in_force(ours, elsewhere, policies=policies)
        cells.insert(0, await cost(server, ours))
    for binding in kept:
        made = {"metadata": {"name": binding["metadata"]["name"]}, "spec": binding["spec"]}
        await api.create(BINDINGS, made)
    await in_force(ours, elsewhere, policies=2)
    return cells


async def main(sizes: list[int]) -> None:
    """Start a server, fill the namespace, and measure at each size."""
    rows = ["without a policy", f"with {POLICY}", "with both", "the same, by an administrator", "… without consent"]
    columns: list[list[str]] = []
    with Bed(node=False) as bed:
        async with bed.api() as api:
            await apply(api, *yaml.safe_load_all(SHIPPED.read_text()))
            await consent(api, WHERE, {**CONSENT})
            await bind(api, WHERE)
            mine, theirs = await simulated_nodes.add(api, 2)
            victim = "victim", await run_pod(api, WHERE, "victim", mine)
            other = "elsewhere", await run_pod(api, WHERE, "elsewhere", theirs)
            uid = await run_pod(api, OWN, "daemon", mine, OWN)
            server, there = Server(bed), 2
            async with Api(await stolen(api, OWN, OWN, "daemon", uid)) as daemon:
                for size in sizes:
                    while there < size:
                        (node,) = await simulated_nodes.add(api, 1, prefix=f"filled-{there}")
                        there += len(await simulated_pods.add(api, node, min(PODS_A_NODE, size - there), running=True))
                    await in_force(asking(daemon, *victim), asking(daemon, *other), policies=2)
                    await server.quiet()
                    columns.append(await measure(server, api, daemon, victim, other))
    print("| median, p95; CPU of the API server |", " | ".join(f"{size:,} pods" for size in sizes), "|")
    print("|---|" + "---|" * len(sizes))
    for number, row in enumerate(rows):
        print(f"| {row} |", " | ".join(column[number] for column in columns), "|")


if __name__ == "__main__":
    asyncio.run(main([int(one) for one in sys.argv[1:]] or list(PODS)))
