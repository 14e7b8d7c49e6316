"""
A node with GPUs of two vendors, made by hand: each vendor's driver counts from 0, so both of its GPUs are GPU 0.

They differ in all else, so that no figure of one passes for the other's. A pod holds both of them, above its limit; two
pods share a claim on both; one was handed both and has no process. The GPU of AMD has more figures than its driver
reports, so that no panel is spared.
"""

from collections.abc import Iterator
from dataclasses import replace

from prometheus_client.core import Metric

from builders import GIB, allocation, device, gpu, limit, memory, pod, snapshot, subject, usage
from default_rules import default_rules
from enforcer.messages.tally import Tally as Acts
from enforcer.policy.history import History, Moment, Standing, Verdict
from enforcer.policy.holder import key_of
from enforcer.policy.vocabulary import Mode, Scope, State
from enforcer.runtime.metrics import collect
from exporter.metrics.exposition import Exposition
from exporter.model import ClaimUsage, DeviceKey, GpuUuid, Health, Sharing, Snapshot, Utilization
from exporter.rounds.latest import Latest, Tally

NODE = "gpu-node-3"
NVIDIA = replace(
    gpu(
        0,
        memory=memory(80 * GIB, used=48 * GIB),
        utilization=Utilization(busy=0.75, sm=0.5),
        health=Health(
            power_watts=512.0,
            energy_joules=4_000.0,
            temperature_celsius=61.0,
            clocks_hertz={"sm": 1_500_000_000.0},
            throttled={"sw_power_cap": True},
            ecc_errors={"corrected": 2, "uncorrected": 0},
        ),
    ),
    uuid=GpuUuid("GPU-00000016-1111-2222-3333-444444444444"),
)
AMD = replace(
    gpu(
        0,
        memory=memory(192 * GIB, used=160 * GIB, reserved=0),
        utilization=Utilization(busy=0.25, sm=0.125),
        health=Health(
            power_watts=256.0,
            energy_joules=1_000.0,
            temperature_celsius=43.0,
            clocks_hertz={"sm": 2_000_000_000.0},
            throttled={"sw_power_cap": False},
            ecc_errors={"corrected": 5, "uncorrected": 0},
        ),
    ),
    uuid=GpuUuid("0000:19:00.0"),
    model="AMD Instinct MI300X",
    vendor="amd",
    pci_bus_id="0000:19:00.0",
    driver_version="6.10.5",
)
LEAVES = {one.vendor: DeviceKey(one.uuid) for one in (NVIDIA, AMD)}
BOTH = pod("both-0", "team-h", workload_kind="Job", workload="both", queue="night", priority_class="low")
SHARER, OTHER, UNUSED = (pod(name, "team-h") for name in ("sharer-0", "sharer-1", "unused-0"))
HOLDS = {"nvidia": 32 * GIB, "amd": 128 * GIB}
"""What the pod that has both holds of each."""
CLAIMED = {"nvidia": 12 * GIB, "amd": 20 * GIB}
"""What the two hold together that share a claim."""
RESOURCES = {"nvidia": "nvidia.com/gpu", "amd": "amd.com/gpu"}


def mixed() -> Snapshot:
    """Make the snapshot."""
    return snapshot(
        device(NVIDIA, attributed=44 * GIB, host=GIB, sharing=Sharing.TIME_SLICING, replicas=4, containers=4),
        device(AMD, attributed=148 * GIB, host=2 * GIB, containers=4),
        usages=[
            one
            for vendor, leaf in LEAVES.items()
            for one in (
                usage(
                    BOTH, leaf, HOLDS[vendor], memory_peak=HOLDS[vendor], sm=0.25, encoder=0.0, decoder=0.0, pids=[11]
                ),
                usage(SHARER, leaf, CLAIMED[vendor] // 2, pids=[21]),
                usage(OTHER, leaf, CLAIMED[vendor] // 2, pids=[22]),
                usage(UNUSED, leaf, 0),
            )
        ],
        pods=(BOTH, SHARER, OTHER, UNUSED),
        allocations=[
            allocation(who, leaf, resource=RESOURCES[vendor])
            for who in (BOTH, UNUSED)
            for vendor, leaf in LEAVES.items()
        ],
        limits=[
            one
            for vendor, leaf in LEAVES.items()
            for one in (
                limit(BOTH, leaf, HOLDS[vendor] // 2, compute=0.5),
                *(
                    limit(who, leaf, 30 * GIB, system=f"{vendor}-dra", source="claim", scope="claim", claim="shared")
                    for who in (SHARER, OTHER)
                ),
            )
        ],
        claim_usages=[
            ClaimUsage("team-h", "shared", leaf, CLAIMED[vendor], frozenset({subject(SHARER), subject(OTHER)}))
            for vendor, leaf in LEAVES.items()
        ],
        memory_declared={leaf: 30 * GIB + HOLDS[vendor] // 2 for vendor, leaf in LEAVES.items()},
        sources_up={"devices": True, "drm": True, "host": True, "names": True},
        node=NODE,
        steady_for=600,
    )


def page() -> bytes:
    """Render the page of that node."""
    latest = Latest()
    latest.snapshot = mixed()
    latest.tally = Tally().after(latest.snapshot)
    exposition = Exposition(latest, node=NODE, version="0.0.0", more=_judged)
    return exposition.page(now=latest.snapshot.monotonic, interval=5.0).body


def _judged(snapshot: Snapshot) -> Iterator[Metric]:
    """Yield the policy's families: the pod that has both GPUs is over on one, and in its grace on the other."""
    states = {"nvidia": State.OVER, "amd": State.GRACE}
    standings = tuple(
        Standing(
            key_of(leaf, BOTH.uid, "main"),
            limit(BOTH, leaf, HOLDS[vendor] // 2),
            "team-h",
            "both-0",
            HOLDS[vendor],
            states[vendor],
            None,
            "",
            Mode.WARN,
            None,
            over=True,
        )
        for vendor, leaf in LEAVES.items()
    )
    verdict = Verdict(Moment(5_000.0, 5_000.0), Mode.WARN, standings, remaining=dict.fromkeys(Scope, 2))
    history = History(over_seconds={("team-h", "both-0", "main", leaf): 60.0 for leaf in LEAVES.values()})
    return collect(snapshot, verdict, history, Acts(), default_rules(mode=Mode.WARN))
