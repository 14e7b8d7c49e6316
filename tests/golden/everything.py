"""
A node that has everything at once, made by hand: the source of the golden page.

Two pods share GPU 0 by time-slicing, and one of them is being replaced. GPU 1 has MIG on. GPU 2 is shared through MPS,
and the memory of one of its processes is unknown. The driver counts GPU 3, which does not answer since its XID 79.
Limits are of each scope; two pods share a claim (DRA) of GPU 4.
"""

from builders import (
    GIB,
    MIB,
    allocation,
    device,
    fault,
    gpu,
    gpu_uuid,
    leaf,
    limit,
    memory,
    pod,
    snapshot,
    subject,
    usage,
)
from enforcer.runtime.metrics import FAMILIES
from exporter.metrics.exposition import Exposition
from exporter.model import (
    Attribution,
    ClaimUsage,
    GpuInstance,
    Hardware,
    Health,
    Sharing,
    Snapshot,
    Utilization,
    XidErrors,
)
from exporter.rounds.latest import Latest, Reload, Tally
from golden.judged import families
from tools.metrics_reference import page

OLD = pod("trainer-0", uid="11111111-old", created_at=1_699_990_000.0, terminating=True, workload="trainer")
NEW = pod(
    "trainer-0",
    uid="22222222-new",
    created_at=1_699_999_990.0,
    workload_kind="StatefulSet",
    workload="trainer",
    queue="research",
    priority_class="high",
)
NEIGHBOUR = pod(
    "notebook-7c9", "team-b", queue='odd "queue"\nwith\\everything ü', workload_kind="Deployment", workload="notebook"
)
ON_MIG = pod("infer-a", "team-c", workload_kind="Deployment", workload="infer")
SANDBOXED = pod("sealed", "team-c")
MPS_ONE, MPS_TWO = pod("mps-1", "team-d"), pod("mps-2", "team-d")
CLAIM_ONE, CLAIM_TWO = pod("rank-0", "team-g"), pod("rank-1", "team-g")
WAITING = pod("waiting", "team-e")
BYSTANDER = pod("web-0", "team-f")
"""Has nothing to do with GPUs, hence no series."""

GPU_0 = gpu(
    0,
    memory=memory(80 * GIB, used=60 * GIB),
    utilization=Utilization(busy=0.93, memory_controller=0.41, encoder=0.0, decoder=0.05),
    health=Health(
        power_watts=611.25,
        energy_joules=987_654_321.5,
        temperature_celsius=67.0,
        clocks_hertz={"sm": 1_980_000_000.0, "memory": 2_619_000_000.0},
        throttled={"sw_power_cap": True, "hw_thermal_slowdown": False},
        ecc_errors={"corrected": 3, "uncorrected": 0},
        memory_temperature_celsius=82.0,
    ),
    hardware=Hardware(
        vbios_version="96.00.74.00.1A",
        power_limit_watts=650.0,
        power_default_limit_watts=700.0,
        temperature_thresholds_celsius={"shutdown": 92.0, "slowdown": 89.0, "memory_max": 95.0, "gpu_max": 87.0},
        remapped_rows={"correctable": 0, "uncorrectable": 2},
        row_remap_pending=True,
        row_remap_failure=False,
        row_remap_banks={"max": 2557, "high": 2, "partial": 0, "low": 0, "none": 1},
        recovery_action="gpu_reset",
        nvlink_errors={"crc_flit": 0, "crc_data": 0, "replay": 12, "recovery": 1},
        pcie_replays=7,
    ),
)
GPU_1 = gpu(
    1,
    memory=memory(80 * GIB, used=12 * GIB),
    health=Health(power_watts=140.0, temperature_celsius=41.0),
    instances=(
        GpuInstance(0, "3g.40gb", ("MIG-aaaa", "MIG-bbbb"), memory(40 * GIB, used=12 * GIB), Utilization(sm=0.25)),
        GpuInstance(7, "1g.10gb", ("MIG-cccc",)),
    ),
)
GPU_4 = gpu(4, memory=memory(80 * GIB, used=9 * GIB))
GPU_2 = gpu(
    2,
    memory=memory(24 * GIB, used=9 * GIB),
    utilization=Utilization(busy=0.5, sm=0.3),
    hardware=Hardware(retired_pages={"single_bit": 4, "double_bit": 1}, page_retirement_pending=False),
)


def everything() -> Snapshot:
    """Make the snapshot."""
    return snapshot(
        device(
            GPU_0, attributed=56 * GIB, ghost=2 * GIB, host=GIB, sharing=Sharing.TIME_SLICING, replicas=4, containers=4
        ),
        device(GPU_1, 0, attributed=12 * GIB, sharing=Sharing.MIG, containers=2),
        device(GPU_1, 7, attributed=0, sharing=Sharing.MIG, containers=0),
        device(GPU_2, attributed=None, sharing=Sharing.MPS, replicas=2, containers=2),
        device(GPU_4, attributed=9 * GIB, sharing=Sharing.DRA, containers=2),
        usages=(
            usage(subject(OLD), leaf(0), 20 * GIB, memory_peak=30 * GIB, sm=0.25, encoder=0.0, decoder=0.0, pids=[101]),
            usage(
                subject(NEW), leaf(0), 15 * GIB, memory_peak=15 * GIB, sm=0.5, encoder=0.0, decoder=0.0, pids=[201, 202]
            ),
            usage(NEIGHBOUR, leaf(0), 20 * GIB, memory_peak=21 * GIB, sm=0.125, encoder=0.0, decoder=0.05, pids=[301]),
            usage(ON_MIG, leaf(1, 0), 8 * GIB, memory_peak=8 * GIB, pids=[401]),
            usage(subject(SANDBOXED, ""), leaf(1, 0), 4 * GIB, memory_peak=4 * GIB, pids=[501]),
            usage(MPS_ONE, leaf(2), None, memory_peak=3 * GIB, sm=0.25, encoder=0.0, decoder=0.0, pids=[601, 602]),
            usage(MPS_TWO, leaf(2), 256 * MIB, memory_peak=256 * MIB, sm=0.0, encoder=0.0, decoder=0.0, pids=[603]),
            usage(CLAIM_ONE, leaf(4), 5 * GIB, memory_peak=5 * GIB, pids=[801]),
            usage(CLAIM_TWO, leaf(4), 4 * GIB, memory_peak=4 * GIB, pids=[802], kernel_limit=10 * GIB, evicted=1.5),
            usage(subject(pod("nameless", uid="not-listed")), leaf(0), GIB, pids=[701]),
        ),
        pods=(OLD, NEW, NEIGHBOUR, ON_MIG, SANDBOXED, MPS_ONE, MPS_TWO, CLAIM_ONE, CLAIM_TWO, WAITING, BYSTANDER),
        allocations=(
            allocation(NEW, leaf(0), 2),
            allocation(NEIGHBOUR, leaf(0)),
            allocation(ON_MIG, leaf(1, 0), resource="nvidia.com/mig-3g.40gb"),
            allocation(WAITING, leaf(3)),
            allocation(CLAIM_ONE, leaf(4), resource="gpu.nvidia.com"),
            allocation(CLAIM_TWO, leaf(4), resource="gpu.nvidia.com"),
        ),
        limits=(
            limit(OLD, leaf(0), 32 * GIB, ceiling=33 * GIB),
            limit(NEW, leaf(0), 20 * GIB, compute=0.25, ceiling=21 * GIB),
            limit(
                NEIGHBOUR,
                leaf(0),
                24 * GIB,
                system="hami-nvidia",
                source="resource",
                enforced_by="hook",
                bypassed=False,
            ),
            limit(ON_MIG, leaf(1, 0), 40 * GIB, system="nvidia-mig", source="resource", scope="instance"),
            limit(SANDBOXED, leaf(1, 0), 6 * GIB, system="koordinator", scope="pod", ceiling=7 * GIB),
            limit(MPS_ONE, leaf(2), 4 * GIB, compute=0.5, system="nvidia-mps", scope="process", enforced_by="mps"),
            limit(MPS_TWO, leaf(2), problems=("that is no quantity, says the test",)),
            *(
                limit(
                    who,
                    leaf(4),
                    10 * GIB,
                    system="nvidia-dra",
                    source="claim",
                    scope="claim",
                    claim="shared",
                    ceiling=11 * GIB,
                )
                for who in (CLAIM_ONE, CLAIM_TWO)
            ),
        ),
        claim_usages=(
            ClaimUsage("team-g", "shared", leaf(4), 9 * GIB, frozenset({subject(CLAIM_ONE), subject(CLAIM_TWO)})),
        ),
        memory_declared={leaf(0): 76 * GIB, leaf(1, 0): 46 * GIB, leaf(4): 10 * GIB},
        present={gpu_uuid(index): index for index in range(5)},
        processes={Attribution.CONTAINER: 9, Attribution.INHERITED: 1, Attribution.GHOST: 1, Attribution.HOST: 2},
        sources_up={"devices": True, "host": True, "names": False},
        xid_errors={
            gpu_uuid(0): {31: XidErrors(2, 1_699_999_000.25), 79: XidErrors()},
            gpu_uuid(3): {31: XidErrors(), 79: XidErrors(1, 1_699_999_995.5)},
            gpu_uuid(9): {79: XidErrors(1, 1_699_000_000.0)},
        },
        faults=(
            fault("gpu_lost", gpu_uuid(3)),
            fault("memory_unknown", gpu_uuid(2), incomplete=False),
        ),
        duration=0.0125,
        steady_for=600,
    )


def tally() -> Tally:
    """Make the tally of a daemon that had a quick round, the one of `everything`, and one that failed."""
    return Tally().after(snapshot(duration=0.002)).after(everything()).after_failure()


def golden_page(accept: str = "", *, exported: bool = False) -> bytes:
    """Render the page of that node, with the other names of labels where these are `exported`."""
    latest = Latest()
    latest.snapshot, latest.tally = everything(), tally()
    latest.reload = Reload(successful=True, at=1_699_990_000.0)
    exposition = Exposition(latest, node=latest.snapshot.node, version="0.0.0", more=families, exported=exported)
    return exposition.page(now=latest.snapshot.monotonic, interval=5.0, accept=accept).body


def reference() -> str:
    """Write docs/metrics.md: the exporter's promises, and the policy's."""
    return page({"The policy (`gpusteward run` only)": FAMILIES})
