"""
What the whole daemon takes on a node, in memory and CPU, with its watch and its kubelet connected. Figures, no verdict.

    PYTHONPATH=tests python -m bench.whole_daemon [PODS ...]

In: numbers of pods, by default 110 and 1,000. Out: a table in Markdown. It measures first on a real node with three
real pods. Then it measures on a simulated one with so many Pod objects of a real API server. There a small server
stands in for the kubelet, because a real one holds 110 pods.

Law: the process is the program that the chart starts, `gpusteward run`, with the packages of the image (`shipped`), in
the default mode and in `dry-run`. It finds its token where a pod has it. It is scraped every 15 s, as Prometheus does.
Its environment is this one's and `shipped.ENVIRONMENT`, so `MALLOC_ARENA_MAX=1 python -m bench.whole_daemon` works.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from pathlib import Path

from bench import account, shipped, simulated_pods
from bench.peers import Scraper
from bench.usage import Memory, cpu_seconds, memory
from cluster import requirements, simulated_nodes
from cluster.bed import NODE_NAME, Bed
from cluster.build import cache
from cluster.manifests import pod, pod_spec
from daemon.running import Daemon, until
from driver.build import build
from driver.node import FakeNode, gpus
from kubelet.fake import FakeKubelet

SCRAPES = 4
EVERY_S = 15.0
READY_WITHIN_S = 60.0
MODES = "observe", "dry-run"
MOUNTED = "/run/secrets/kubernetes.io/serviceaccount"
IN_A_POD = f'mount -t tmpfs none /run && mkdir -p {MOUNTED} && mount --bind "$0" {MOUNTED} && exec "$@"'
"""A shell's words: what a kubelet does with the folder `$0`, in a mount namespace that is left to the program `$@`."""


def started(mode: str, driver: FakeNode, *flags: str, pod: tuple[Bed, Path] | None = None) -> Daemon:
    """Start the program; `pod`: an API server, and the folder with our token there."""
    variables, enter = driver.environment() | shipped.ENVIRONMENT, list[str]()
    if pod is not None:
        bed, folder = pod
        variables |= {"KUBERNETES_SERVICE_HOST": "127.0.0.1"}
        variables |= {"KUBERNETES_SERVICE_PORT": str(bed.control_plane.port)}
        enter = ["unshare", "--mount", "--propagation=private", "sh", "-c", IN_A_POD, str(folder)]
    common = ("--devices=nvml", "--node.host-root=/", "--log.format=json", f"--mode={mode}")
    return Daemon(*common, *flags, env=variables, enter=enter, command=(shipped.programs() / "gpusteward", "run"))


async def measure(what: str, pods: int, daemon: Daemon) -> None:
    """Wait until the daemon knows so many pods, then a minute, and print a row."""

    def ready() -> bool:
        s = daemon.snapshot()
        return bool(s["complete"] and (not pods or (s["names_live"] and len(s["pods"]) >= pods)))

    await asyncio.to_thread(until, ready, f"a complete round with {pods} pods", daemon, READY_WITHIN_S)
    pid, scrape = daemon.process.pid, Scraper(daemon.url.removeprefix("http://"))
    began, start = cpu_seconds(pid), memory(pid)
    for _ in range(SCRAPES):
        await asyncio.sleep(EVERY_S)
        await asyncio.to_thread(scrape)
    share = (cpu_seconds(pid) - began) / (SCRAPES * EVERY_S)
    print(row(what, start, memory(pid), began, share), flush=True)


def row(what: str, start: Memory, later: Memory, cpu_start: float, share: float) -> str:
    """Make a line of the table."""
    return (
        f"| {what} | {start.rss:.0f} MB | {later.rss:.0f} MB | {later.anonymous:.0f} MB | {later.peak:.0f} MB | "
        f"{cpu_start:.1f} s | {share:.2%} |"
    )


async def without_kubernetes(folder: Path) -> None:
    """Measure the daemon without Kubernetes: eight GPUs, and no pod has a name."""
    with FakeNode(folder / "driver", build(cache())) as node:
        node.write(gpus(8))
        for mode in MODES:
            with started(mode, node, "--names.source=none") as daemon:
                await measure(f"no Kubernetes, `{mode}`", 0, daemon)


async def on_a_real_node(folder: Path) -> None:
    """Three pods with GPUs, through real API server, kubelet and containerd."""
    with Bed() as bed:
        async with bed.api() as api:
            await account.grant(api)
            await account.mount(bed, api, [folder / "account"])
            for number in range(3):
                spec = pod_spec(command=["/bin/workload", "alloc visible 1GiB"], resources={"nvidia.com/gpu.shared": 1})
                await api.create("/api/v1/namespaces/default/pods", pod(f"train-{number}", spec))
                await api.ready_pod("default", f"train-{number}")
            flags = f"--node-name={NODE_NAME}", f"--node.kubelet-root={bed.node.kubelet_folder}"
            for mode in MODES:
                with started(mode, bed.driver, *flags, pod=(bed, folder / "account")) as daemon:
                    await measure(f"3 pods, real kubelet, `{mode}`", 3, daemon)


async def on_simulated_nodes(folder: Path, sizes: list[int]) -> None:
    """So many pods on a node whose kubelet is simulated."""
    cards = gpus(8)
    with Bed(node=False) as bed, FakeNode(folder / "driver", build(cache())) as driver:
        driver.write(cards)
        async with bed.api() as api:
            await account.grant(api)
            for size in sizes:
                (node,) = await simulated_nodes.add(api, 1, prefix=f"with-{size}-pods")
                listed, allocatable = simulated_pods.answers(
                    await simulated_pods.add(api, node, size, running=True), cards
                )
                place = folder / str(size)
                await account.mount(bed, api, [place])
                socket = place / "pod-resources/kubelet.sock"
                async with FakeKubelet(socket, listed=listed, allocatable=allocatable):
                    for mode in MODES:
                        flags = f"--node-name={node}", f"--node.kubelet-root={place}"
                        with started(mode, driver, *flags, pod=(bed, place)) as daemon:
                            await measure(f"{size:,} pods, simulated kubelet, `{mode}`", size, daemon)


async def main(sizes: list[int]) -> None:
    """Measure and print."""
    if lacking := requirements.missing(node=True):
        sys.exit("; ".join(lacking))
    print(
        "| node | RSS once all is known | RSS a minute later | of it anonymous | most ever | CPU until all is known | "
        "share of a core in that minute |"
    )
    print("|---|---|---|---|---|---|---|", flush=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        await without_kubernetes(folder / "none")
        await on_a_real_node(folder / "real")
        await on_simulated_nodes(folder / "simulated", sizes)


if __name__ == "__main__":
    asyncio.run(main([int(word) for word in sys.argv[1:]] or [110, 1000]))
