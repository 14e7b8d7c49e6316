"""
What the names cost: CPU and memory of list and watch over many pods, in a process of its own.

    PYTHONPATH=tests python -m sources.bench_kube [PODS ...]

A small server in this process gives realistic pods (5 kB each, half of it managed fields) and then changes of them. The
watching process is measured by itself. Prints one line for each number of pods.
"""

import asyncio
import json
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from sources.kube_api import Object, event, kubeconfig, listing, pod, serving

CHANGES = 2000
NODE = "n1"

WATCHER = """
import asyncio, resource, sys, time
def rss():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize() / 1e6
bare = rss()
import msgspec, structlog, aiohttp
ours = rss()
import kubernetes.aio.client
library = rss()
from random import Random
from exporter.base.clock import SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import from_kubeconfig
from exporter.kube.inventory import KubeInventory
from exporter.kube.pods import parse_list
imported, cpu_imports = rss(), time.process_time()

async def main():
    client = Client(from_kubeconfig(sys.argv[1]), clock=SystemClock())
    source = KubeInventory(client, "n1", clock=SystemClock(), random=Random(1))
    task = asyncio.create_task(source.run())
    while not source.inventory().live:
        await asyncio.sleep(0.001)
    listed, cpu_listed = rss(), time.process_time()
    began = time.process_time()
    for _ in range(20):
        source.inventory()
    answer = (time.process_time() - began) / 20
    last = str(int(sys.argv[2]))
    before = time.process_time()
    while source._watch.pods.version != last:
        await asyncio.sleep(0.05)
    cpu_changes = time.process_time() - before
    body = await client.get("/api/v1/pods", {})
    best = 1e9
    for _ in range(5):
        began = time.process_time()
        parse_list(body)
        best = min(best, time.process_time() - began)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e6
    print(
        f"bare {bare:.0f} MB, +msgspec+structlog+aiohttp {ours:.0f}, +kubernetes.aio {library:.0f}, "
        f"+exporter.kube {imported:.0f}; watching {listed:.0f}, after the changes {rss():.0f}, peak {peak:.0f} MB | "
        f"CPU: imports {cpu_imports * 1e3:.0f} ms, connect+list {(cpu_listed - cpu_imports) * 1e3:.0f} ms, "
        f"parse_list of {len(body) / 1e6:.1f} MB {best * 1e3:.1f} ms, inventory() {answer * 1e3:.2f} ms, "
        f"a change {cpu_changes / int(sys.argv[3]) * 1e6:.0f} us"
    )
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    await client.close()

asyncio.run(main())
"""


def realistic(number: int, version: int = 1) -> Object:
    """A pod of two containers, 5 kB."""
    ids = [f"{number:032x}{version:031x}{place}" for place in range(2)]
    fields: Object = {
        f"f:{part}": {f"f:field-{place}": {} for place in range(12)} for part in ("metadata", "spec", "status", "x")
    }
    return pod(
        f"train-{number}-worker-0",
        f"2c48913c-b29f-11e7-9350-{number:012}",
        node=NODE,
        version=str(version),
        metadata={
            "labels": {"app": "train", "kueue.x-k8s.io/queue-name": "gold", "pod-template-hash": "5d4f"},
            "annotations": {
                "cni.example.com/networks": "x" * 200,
                "hami.io/vgpu-devices-allocated": "GPU-1,NVIDIA,1000,30:;",
            },
            "ownerReferences": [
                {"apiVersion": "kubeflow.org/v1", "kind": "PyTorchJob", "name": "train", "uid": "u", "controller": True}
            ],
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}] * 2,
        },
        spec={
            "containers": [
                {
                    "name": name,
                    "image": "registry.example.com/team/training:2026.11",
                    "env": [{"name": f"VARIABLE_{place}", "value": "value"} for place in range(10)],
                    "resources": {"limits": {"nvidia.com/gpu": "1", "memory": "64Gi"}, "requests": {"cpu": "8"}},
                    "volumeMounts": [{"name": "data", "mountPath": "/data"}],
                }
                for name in ("main", "sidecar")
            ]
        },
        status={
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "Initialized", "PodScheduled")],
            "containerStatuses": [
                {"name": name, "containerID": f"containerd://{id_}", "state": {"running": {}}, "lastState": {}}
                for name, id_ in zip(("main", "sidecar"), ids, strict=True)
            ],
        },
    )


async def measure(pods: int) -> str:
    """Return what the watching process said."""
    first, last = 10**6, 10**6 + CHANGES
    body = listing(*(realistic(number) for number in range(pods)), version=str(first))

    async def answer(request: web.Request) -> web.StreamResponse:
        if "watch" not in request.query:
            return web.Response(body=body)
        response = web.StreamResponse()
        response.enable_chunked_encoding()
        await response.prepare(request)
        await asyncio.sleep(1.0)
        for version in range(first + 1, last + 1):
            await response.write(event("MODIFIED", realistic(version % pods, version)) + b"\n")
            await asyncio.sleep(0.001)
        await asyncio.Event().wait()
        return response

    with tempfile.TemporaryDirectory() as folder:
        async with serving(answer) as server:
            config = kubeconfig(Path(folder, "config"), server.url)
            words = sys.executable, "-c", WATCHER, config, str(last), str(CHANGES)
            process = await asyncio.create_subprocess_exec(*words, stdout=asyncio.subprocess.PIPE)
            told, _ = await process.communicate()
    size = len(json.dumps(realistic(0)))
    return f"{pods} pods of {size} bytes: {told.decode().strip()}"


if __name__ == "__main__":
    for word in sys.argv[1:] or ("110", "1000"):
        print(asyncio.run(measure(int(word))))
