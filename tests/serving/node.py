"""
A served node for tests: snapshots in, a real HTTP server on a free port out.

`busy()` is one node with everything that the node page has to draw: time-slicing, MPS, MIG, ghosts, unknown accounts, a
lost GPU, a pod whose name tries to be markup.
"""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from builders import (
    GIB,
    MIB,
    TAKEN_AT,
    allocation,
    device,
    gpu,
    gpu_uuid,
    leaf,
    memory,
    pod,
    snapshot,
    subject,
    usage,
)
from exporter.base.clock import SystemClock
from exporter.config.values import ListenAddress
from exporter.limits import Resolution
from exporter.metrics.exposition import Exposition
from exporter.model import Fault, GpuInstance, Hardware, Health, PodUid, Sharing, Snapshot, Utilization, XidErrors
from exporter.rounds.judge import Judge
from exporter.rounds.latest import Latest, Tally
from exporter.web.app import Answers
from exporter.web.server import Server

PROGRAM = "gpusteward-test 1.2.3"
INTERVAL = 5.0
MARKUP = "<img src=x onerror=alert(1)>"


def busy() -> Snapshot:
    """Make a node of five GPUs of which one does not answer."""
    hot = Health(
        power_watts=412.3, temperature_celsius=61, throttled={"sw_power_cap": True}, ecc_errors={"uncorrected": 2}
    )
    instances = tuple(
        GpuInstance(i, profile, (f"MIG-{i}",), memory(total * GIB, used=used * GIB, reserved=50 * MIB))
        for i, profile, total, used in [(2, "3g.40gb", 40, 31), (9, "1g.10gb", 10, 0)]
    )
    sliced = gpu(0, memory=memory(used=62 * GIB), utilization=Utilization(busy=0.93, sm=0.71), health=hot)
    served, mig, unclear = (
        gpu(1, memory=memory(used=79 * GIB)),
        gpu(2, memory=memory(used=31 * GIB), instances=instances),
        gpu(
            3,
            memory=memory(used=20 * GIB),
            hardware=Hardware(row_remap_failure=True, recovery_action="drain_and_reset"),
        ),
    )
    train, notebook, odd, triton, idle = (
        pod("llama-0", "research"),
        pod("anna", "notebooks"),
        pod(MARKUP, "<script>"),
        pod("triton", "inference"),
        pod("idle", "notebooks"),
    )
    return snapshot(
        device(sliced, attributed=51 * GIB, ghost=6 * GIB, host=2 * GIB, sharing=Sharing.TIME_SLICING, replicas=4),
        device(served, attributed=75 * GIB, sharing=Sharing.MPS, replicas=10),
        device(mig, 2, attributed=31 * GIB, sharing=Sharing.MIG),
        device(mig, 9, attributed=0, sharing=Sharing.MIG),
        device(unclear, attributed=None, ghost=None, host=None),
        round=1234,
        usages=[
            usage(train, leaf(0), 30 * GIB, memory_peak=34 * GIB, sm=0.55, pids=[4211, 4212]),
            usage(notebook, leaf(0), 18 * GIB, pids=[77]),
            usage(subject(notebook, "sidecar"), leaf(0), 3 * GIB, pids=[78]),
            usage(train, leaf(1), 60 * GIB, pids=[11]),
            usage(odd, leaf(1), 15 * GIB, pids=[5]),
            usage(triton, leaf(2, 2), 31 * GIB, sm=0.8, pids=[55]),
        ],
        pods=[train, notebook, odd, triton, idle, pod("bystander", "kube-system")],
        allocations=[allocation(idle, leaf(2, 9)), allocation(train, leaf(0))],
        present={gpu_uuid(i): i for i in range(5)},
        sources_up={"devices": True},
        xid_errors={
            gpu_uuid(2): {31: XidErrors(3, TAKEN_AT - 600, 2), 79: XidErrors()},
            gpu_uuid(4): {
                45: XidErrors(1, TAKEN_AT - 20),
                79: XidErrors(1, TAKEN_AT - 30),
                987: XidErrors(1, TAKEN_AT),
            },
        },
        faults=[
            Fault("devices", "gpu_lost", "GPU 4 fell off the bus", gpu_uuid(4)),
            Fault("names", "away", "names are remembered ones", incomplete=False),
        ],
    )


@asynccontextmanager
async def serving(
    *snapshots: Snapshot,
    age: float = 0.0,
    interval: float = INTERVAL,
    api: bool = True,
    config_file: Path | None = None,
    address: str = "127.0.0.1:0",
    probe_address: str | None = None,
    judge: Judge | None = None,
    resolution: Callable[[PodUid], Resolution | None] = lambda _uid: None,
) -> AsyncIterator[tuple[Server, Latest]]:
    """Serve the last of `snapshots` as one that was taken `age` seconds ago."""
    clock, latest = SystemClock(), Latest()
    for each in snapshots:
        now = replace(each, taken_at=clock.time() - age, monotonic=clock.monotonic() - age)
        latest.publish(now, Tally(rounds=each.round))
    answers = Answers(
        latest,
        Exposition(latest, node="gpu-node-1", version="1.2.3"),
        interval=lambda: interval,
        clock=clock,
        program=PROGRAM,
        started=clock.monotonic(),
        api=api,
        resolution=resolution,
        judge=judge,
    )
    probes = ListenAddress(probe_address) if probe_address else None
    async with Server(answers, ListenAddress(address), config_file, probes, poll=0.01) as server:
        yield server, latest
