"""
What it costs to resolve the limits of one pod: `PYTHONPATH=tests .venv/bin/python -m bench.resolving`.

In: nothing. Out: a table in Markdown on standard output, which docs/performance.md keeps. Law: the median of many runs
in one process, on a node with 8 GPUs and 60 labels. The hostile pods are as large as the API server allows.
"""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Iterator

from exporter.limits import LeafDevice, resolve
from exporter.limits.decoding import MOST
from exporter.limits.loading import builtin
from exporter.model import DeclaredContainer, DeclaredPod, DeviceKey, GpuUuid, Mechanism, NodeFacts

SECONDS = 3.0
"""For each pod."""
ANNOTATIONS = 256 * 1024
"""Bytes of all annotations of an object: the API server's limit."""
HAMI = "hami.io/vgpu-devices-allocated"
KOORDINATOR = "scheduling.koordinator.sh/device-allocated"

DEVICES = tuple(
    LeafDevice(DeviceKey(GpuUuid(f"GPU-{index:08x}-1111-2222-3333-444444444444")), index, minor=index, memory=80 << 30)
    for index in range(8)
)
NODE = NodeFacts({"nvidia.com/gpu": "8", "cpu": "64"}, labels={f"example.com/label-{each}": "x" for each in range(60)})


def pod(
    resources: dict[str, str], annotations: dict[str, str] | None = None, env: dict[str, str] | None = None
) -> DeclaredPod:
    main = DeclaredContainer("main", limits={"cpu": "4", "memory": "16Gi", **resources}, env=env or {})
    return DeclaredPod("uid", "team-a", "pod", {"app": "x"}, annotations or {}, (main,))


def pods() -> Iterator[tuple[str, DeclaredPod]]:
    uuids = [device.key.uuid for device in DEVICES if device.key is not None]
    asks = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}
    yield "no GPU", pod({})
    yield "a whole GPU", pod({"nvidia.com/gpu": "1"})
    yield "HAMi, with its annotation", pod(asks, {HAMI: f"{uuids[0]},NVIDIA,4096,30:;"})
    every = {
        row.key.replace("*", "main"): "x" * 2000
        for system in builtin()
        for row in system.rows
        if row.mechanism is Mechanism.ANNOTATION
    }
    yield f"garbage under all {len(every)} annotations that are read", pod(asks, every)
    yield "2,000 annotations that nobody reads", pod(asks, {f"example.com/{n}": "x" * 100 for n in range(2000)})
    yield "one annotation of 256 KiB, empty segments", pod(asks, {HAMI: ":;" * (ANNOTATIONS // 2)})
    listed = ":".join(f"{uuids[n % 8]},NVIDIA,{4096 + n},30" for n in range(MOST))
    yield f"HAMi's annotation with {MOST} devices, the most that one may name", pod(asks, {HAMI: f"{listed}:;"})
    gpu = '{"minor":%d,"resources":{"koordinator.sh/gpu-memory":"%dMi"}}'
    gpus = ",".join(gpu % (n % 8, 1000 + n) for n in range(MOST))
    yield (
        f"Koordinator's with {MOST} devices",
        pod({"koordinator.sh/gpu": "50"}, {KOORDINATOR: f'{{"gpu":[{gpus}]}}'}),
    )


def main() -> int:
    print("| pod | median | candidates |")
    print("|---|---|---|")
    for name, each in pods():
        took: list[float] = []
        end = time.perf_counter() + SECONDS
        while not took or time.perf_counter() < end:
            began = time.perf_counter()
            found = resolve(each, NODE, DEVICES, builtin())
            took.append(1000 * (time.perf_counter() - began))
        looked_at = sum(len(limit.candidates) for limit in found.limits)
        print(f"| {name} | {statistics.median(took):.2g} ms | {looked_at} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
