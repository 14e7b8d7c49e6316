"""What the samples say, and what is left unsaid."""

from dataclasses import replace

import pytest

from builders import (
    GIB,
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
from exporter.rounds.latest import DURATION_BUCKETS, Latest, Reload, Tally
from scraped import series

ONE_GPU = device(gpu(memory=memory(used=10 * GIB)), attributed=10 * GIB)


def page(snapshot: Snapshot | None, tally: Tally | None = None) -> str:
    latest = Latest()
    latest.snapshot, latest.tally = snapshot, tally or Tally()
    now = snapshot.monotonic if snapshot else 0.0
    return Exposition(latest, node="gpu-node-1", version="1.2.3").page(now=now, interval=5).body.decode()


def test_what_is_unknown_has_no_sample() -> None:
    """A GPU of which nothing was measured is named and up, and has no figure at all; nothing is written as 0."""
    text = page(snapshot(device(gpu(), attributed=None, ghost=None, host=None), usages=[usage(pod(), leaf(), None)]))
    assert series(text, "gpu_up", "gpu") == {("0",): 1}
    figures = (
        "device_memory device_utilization device_sm device_encoder device_containers gpu_memory gpu_power gpu_energy"
    )
    figures += " gpu_temperature gpu_clock gpu_throttled gpu_ecc gpu_xid container_memory container_sm"
    assert [name for name in figures.split() if f"gpusteward_{name}" in text] == []


def test_a_measured_zero_is_written() -> None:
    """An idle, empty GPU has its zeros."""
    idle = gpu(memory=memory(used=0), utilization=Utilization(busy=0.0), health=Health(power_watts=0.0))
    text = page(snapshot(device(idle, attributed=0, containers=0), usages=[usage(pod(), leaf(), 0)], pods=[pod()]))
    for name in ("device_memory_used_bytes", "device_memory_attributed_bytes", "device_utilization_ratio"):
        assert series(text, name) == {(): 0}
    assert series(text, "gpu_power_watts") == series(text, "device_containers") == {(): 0}
    assert series(text, "container_memory_used_bytes") == series(text, "container_processes") == {(): 0}


def test_what_a_gpu_needs_is_one_series() -> None:
    """The present recovery action has 1, and no other has a sample; flags are 0 or 1, and unknown ones absent."""
    needy = gpu(hardware=Hardware(recovery_action="gpu_reset", row_remap_failure=True, row_remap_pending=False))
    text = page(snapshot(device(needy, attributed=None)))
    assert series(text, "gpu_recovery_action", "action") == {("gpu_reset",): 1}
    assert series(text, "gpu_row_remap_failure") == {(): 1}
    assert series(text, "gpu_row_remap_pending") == {(): 0}
    assert "page_retirement_pending" not in text and "gpu_vbios_info" not in text


def test_a_gpu_that_does_not_answer_is_down() -> None:
    """The driver counts two GPUs and one answers: the other has `gpu_up` 0, and no other series."""
    text = page(snapshot(ONE_GPU, present={gpu_uuid(0): 0, gpu_uuid(1): 1}))
    assert series(text, "gpu_up", "gpu", "uuid") == {("0", gpu_uuid(0)): 1, ("1", gpu_uuid(1)): 0}
    assert text.count(gpu_uuid(1)) == 1


def test_xids_outlive_the_answers_of_their_gpu() -> None:
    """A lost GPU keeps what was heard of it; one that is there no more has no series; silence is no zero."""
    here, lost, gone, silent = (gpu_uuid(index) for index in range(4))
    text = page(
        snapshot(
            device(gpu(0), attributed=0),
            device(gpu(3), attributed=0),
            present={here: 0, lost: 1, silent: 3},
            xid_errors={
                here: {79: XidErrors()},
                lost: {79: XidErrors(1, 7.5)},
                gone: {79: XidErrors(1, 5.0)},
            },
        )
    )
    assert series(text, "gpu_xid_errors_total", "gpu", "xid") == {("0", "79"): 0, ("1", "79"): 1}
    assert series(text, "gpu_xid_last_timestamp_seconds", "gpu", "xid") == {("1", "79"): 7.5}


def test_with_mig_on_only_instances_are_leaf_devices() -> None:
    """The sum over devices counts each byte once: a GPU with MIG on has memory only as its instances."""
    split = gpu(
        1,
        memory=memory(80 * GIB, used=12 * GIB),
        instances=(
            GpuInstance(0, "3g.40gb", ("MIG-a", "MIG-b"), memory(40 * GIB, used=8 * GIB)),
            GpuInstance(7, "1g.10gb", ("MIG-c",), memory(10 * GIB, used=4 * GIB)),
        ),
    )
    text = page(snapshot(ONE_GPU, device(split, 0, sharing=Sharing.MIG), device(split, 7, sharing=Sharing.MIG)))
    assert series(text, "device_memory_used_bytes", "gpu", "gpu_instance") == {
        ("0", ""): 10 * GIB,
        ("1", "0"): 8 * GIB,
        ("1", "7"): 4 * GIB,
    }
    assert series(text, "gpu_memory_total_bytes", "gpu") == {("0",): 80 * GIB, ("1",): 80 * GIB}
    assert series(text, "device_info", "gpu", "gpu_instance", "profile", "mig_uuid") == {
        ("0", "", "", ""): 1,
        ("1", "0", "3g.40gb", "MIG-a,MIG-b"): 1,
        ("1", "7", "1g.10gb", "MIG-c"): 1,
    }


def test_the_accounts_close_on_the_page() -> None:
    """attributed + ghost + host + unattributed = used, as a dashboard would add them up."""
    shared = gpu(memory=memory(used=20 * GIB))
    text = page(snapshot(device(shared, attributed=11 * GIB, ghost=2 * GIB, host=3 * GIB)))
    parts = {part: series(text, f"device_memory_{part}_bytes")[()] for part in ("attributed", "ghost", "host")}
    assert parts == {"attributed": 11 * GIB, "ghost": 2 * GIB, "host": 3 * GIB}
    rest = series(text, "device_memory_unattributed_bytes")[()]
    assert sum(parts.values()) + rest == series(text, "device_memory_used_bytes")[()]


def test_generations_of_one_name_are_summed() -> None:
    """While the old pod terminates and the new one runs, their values add up in one series per name and device."""
    old, new = pod(uid="old", terminating=True), pod(uid="new", created_at=2e9)
    text = page(
        snapshot(
            ONE_GPU,
            usages=[
                usage(old, leaf(), 4 * GIB, memory_peak=9 * GIB, sm=0.75, pids=[1]),
                usage(subject(new, generation=0), leaf(), 2 * GIB, memory_peak=2 * GIB, sm=0.5, pids=[2, 3]),
                usage(subject(new, generation=1), leaf(), 1 * GIB, memory_peak=1 * GIB, sm=0.0, pids=[4]),
            ],
            pods=[old, new],
        )
    )
    assert series(text, "container_memory_used_bytes", "namespace", "pod", "container") == {
        ("team-a", "trainer-0", "main"): 7 * GIB
    }
    assert series(text, "container_memory_peak_bytes") == {(): 12 * GIB}
    assert series(text, "container_processes") == {(): 4}
    assert series(text, "container_sm_utilization_ratio") == {(): 1}, "a ratio is never above 1"


def test_generations_of_one_name_have_one_total() -> None:
    """The seconds of evicted queues are the name's already, and one of them may have no figure: nothing is added up."""
    old, new = pod(uid="old", terminating=True), pod(uid="new")
    both = [usage(old, leaf(), evicted=125.0), usage(new, leaf(), evicted=125.0)]
    both += [usage(subject(new, generation=1), leaf())]
    text = page(snapshot(ONE_GPU, usages=both, pods=[old, new]))
    assert series(text, "container_queue_evicted_seconds_total") == {(): 125.0}


def test_unknown_of_one_generation_is_unknown_of_the_sum() -> None:
    """Half a sum would look like a drop in use: it is not written. What is known of both still is."""
    old, new = pod(uid="old", terminating=True), pod(uid="new")
    text = page(
        snapshot(
            ONE_GPU,
            usages=[usage(old, leaf(), None, memory_peak=GIB, pids=[1]), usage(new, leaf(), GIB, pids=[2])],
            pods=[old, new],
        )
    )
    assert series(text, "container_memory_used_bytes") == series(text, "container_memory_peak_bytes") == {}
    assert series(text, "container_processes") == {(): 2}


def test_a_container_has_one_series_for_each_device() -> None:
    """A container on two devices is not summed over them, and its series carry the labels of each."""
    who = pod()
    both = [ONE_GPU, device(gpu(3, memory=memory()))]
    text = page(snapshot(*both, usages=[usage(who, leaf(0), 1), usage(who, leaf(3), 2)], pods=[who]))
    assert series(text, "container_memory_used_bytes", "gpu", "uuid") == {
        ("0", gpu_uuid(0)): 1,
        ("3", gpu_uuid(3)): 2,
    }


def test_a_usage_without_a_name_is_left_out() -> None:
    """A pod that is not listed cannot be named: its usage is missing, and the page of the others stands."""
    known, unknown = pod(), pod("gone")
    text = page(snapshot(ONE_GPU, usages=[usage(known, leaf()), usage(unknown, leaf())], pods=[known]))
    assert series(text, "container_memory_used_bytes", "pod") == {("trainer-0",): GIB}
    assert series(text, "pod_info", "pod") == {("trainer-0",): 1}


def test_replicas_are_told_whether_used_or_not() -> None:
    """What the kubelet handed out is summed by name, resource and device, also on a GPU that does not answer."""
    who = pod()
    text = page(
        snapshot(
            ONE_GPU,
            pods=[who],
            present={gpu_uuid(0): 0, gpu_uuid(5): 5},
            allocations=[
                allocation(who, leaf(0), 2),
                allocation(who, leaf(0), 1),
                allocation(who, leaf(0), resource="nvidia.com/gpu.shared"),
                allocation(who, leaf(5)),
                allocation(who, leaf(9)),
            ],
        )
    )
    assert series(text, "container_allocated_replicas", "gpu", "uuid", "resource") == {
        ("0", gpu_uuid(0), "nvidia.com/gpu"): 3,
        ("0", gpu_uuid(0), "nvidia.com/gpu.shared"): 1,
        ("5", gpu_uuid(5), "nvidia.com/gpu"): 1,
        ("", gpu_uuid(9), "nvidia.com/gpu"): 1,
    }


def test_of_pods_of_one_name_the_newest_is_told() -> None:
    """One `pod_info` per namespace and pod: the newest UID, though only the old one still holds memory."""
    old = pod(uid="old", created_at=100, terminating=True)
    new = pod(uid="new", created_at=200, workload="trainer", queue="research", priority_class="high")
    other = pod(namespace="team-b", uid="other", created_at=50)
    for pods in ([old, new, other], [other, new, old]):
        text = page(snapshot(ONE_GPU, usages=[usage(old, leaf()), usage(other, leaf())], pods=pods))
        assert series(text, "pod_info", "namespace", "pod", "pod_uid", "workload", "queue", "priority_class") == {
            ("team-a", "trainer-0", "new", "trainer", "research", "high"): 1,
            ("team-b", "trainer-0", "other", "", "", ""): 1,
        }


def test_pods_without_a_device_are_nobodys_business() -> None:
    """A pod that neither holds nor was handed a device has no series; one that was handed a device has."""
    handed, bystander = pod("handed"), pod("web-0")
    text = page(snapshot(ONE_GPU, pods=[handed, bystander], allocations=[allocation(handed, leaf())]))
    assert series(text, "pod_info", "pod") == {("handed",): 1}
    assert "web-0" not in text


def test_every_attribution_is_told() -> None:
    """Each way to count an entry has its series, with 0 where there was none."""
    text = page(snapshot(ONE_GPU, processes={Attribution.GHOST: 2}))
    expected = {(str(attribution),): 0.0 for attribution in Attribution} | {("ghost",): 2.0}
    assert series(text, "gpu_processes", "attribution") == expected


def test_the_daemon_counts_its_rounds() -> None:
    """Rounds, failures, reasons and durations are those of the tally; the buckets add up as Prometheus wants."""
    tally = Tally()
    for duration in (0.002, 0.002, 0.03, 60.0):
        tally = tally.after(snapshot(duration=duration, faults=[fault("gpu_lost"), fault("told", incomplete=False)]))
    text = page(snapshot(), tally.after_failure())
    assert series(text, "rounds_total") == {(): 5}
    assert series(text, "round_failures_total") == {(): 1}
    assert series(text, "rounds_incomplete_total", "reason") == {("gpu_lost",): 4}
    buckets = series(text, "round_duration_seconds_bucket", "le")
    assert [float(bound) for (bound,) in buckets] == [*DURATION_BUCKETS, float("inf")]
    assert list(buckets.values()) == [0, 2, 2, 2, 2, 3, 3, 3, 3, 3, 4]
    assert series(text, "round_duration_seconds_count") == {(): 4}
    assert series(text, "round_duration_seconds_sum")[()] == pytest.approx(60.034)


def test_a_refused_config_is_told_before_the_first_round_too() -> None:
    """1 or 0, and since when the one in force is in force; without a config file nothing is said."""
    assert "config_last_reload" not in page(None)
    for successful in (True, False):
        latest = Latest()
        latest.reload = Reload(successful, at=1_700_000_000.5)
        text = Exposition(latest, node="n", version="1").page(now=0.0, interval=5).body.decode()
        assert series(text, "config_last_reload_successful") == {(): float(successful)}
        assert series(text, "config_last_reload_success_timestamp_seconds") == {(): 1_700_000_000.5}


def test_limits_keep_their_scope() -> None:
    """A pod's limit is no container's, and a process's (MPS) is in no byte series; which one it is stands beside."""
    own, whole, client = pod("own"), pod("whole"), pod("client")
    text = page(
        snapshot(
            ONE_GPU,
            pods=[own, whole, client],
            limits=[
                limit(own, leaf(), 8 * GIB),
                limit(own, leaf(), 4 * GIB, scope="process", system="nvidia-mps", compute=0.5),
                limit(whole, leaf(), 6 * GIB, scope="pod"),
                limit(client, leaf(), 4 * GIB, scope="process", system="nvidia-mps", enforced_by="mps"),
            ],
        )
    )
    assert series(text, "container_memory_limit_bytes", "pod", "container") == {("own", "main"): 8 * GIB}
    assert series(text, "pod_memory_limit_bytes", "pod", "container") == {("whole", ""): 6 * GIB}
    assert series(text, "container_compute_limit_ratio", "pod") == {("own",): 0.5}
    assert set(series(text, "container_limit_info", "pod", "container", "system", "scope")) == {
        ("own", "main", "gpusteward", "container"),
        ("own", "main", "nvidia-mps", "process"),
        ("whole", "", "gpusteward", "pod"),
        ("client", "main", "nvidia-mps", "process"),
    }
    assert series(text, "device_memory_declared_bytes") == {}


def test_limits_of_one_name_are_summed_and_one_unknown_makes_the_sum_unknown() -> None:
    """While the old pod ends, its limit counts beside the new one's, as what both use does."""
    old, new = pod(uid="old", terminating=True), pod(uid="new")
    both = [limit(old, leaf(), 2 * GIB, compute=0.25), limit(new, leaf(), 3 * GIB, compute=0.5)]
    text = page(snapshot(ONE_GPU, pods=[old, new], limits=both))
    assert series(text, "container_memory_limit_bytes") == {(): 5 * GIB}
    assert series(text, "container_compute_limit_ratio") == {(): 0.75}
    assert series(text, "container_limit_info") == {(): 1}
    text = page(snapshot(ONE_GPU, pods=[old, new], limits=[both[0], limit(new, leaf())]))
    assert series(text, "container_memory_limit_bytes") == series(text, "container_compute_limit_ratio") == {}


def test_a_claim_that_pods_share_counts_once() -> None:
    """A claim has one series, however many pods share it. A limit per process is none of it; unknown has no sample."""
    one, two = pod("rank-0"), pod("rank-1")
    limits = [
        limit(one, leaf(), 10 * GIB, source="claim", scope="claim", claim="shared"),
        limit(two, leaf(), 12 * GIB, source="claim", scope="claim", claim="shared"),
        limit(one, leaf(), 2 * GIB, source="claim-config", scope="process"),
    ]
    usages = (ClaimUsage("team-a", "shared", leaf(), 9 * GIB), ClaimUsage("team-a", "unclear", leaf(), None))
    text = page(snapshot(ONE_GPU, pods=(one, two), limits=limits, claim_usages=usages))
    labels = ("namespace", "claim", "gpu", "pod", "container")
    assert series(text, "claim_memory_used_bytes", *labels) == {("team-a", "shared", "0", "", ""): 9 * GIB}
    smaller = {("team-a", "shared", "0", "", ""): 10 * GIB}
    assert series(text, "claim_memory_limit_bytes", *labels) == smaller, (
        "of two views the smaller: one is a round behind"
    )
    assert series(text, "container_memory_limit_bytes") == series(text, "pod_memory_limit_bytes") == {}


def test_a_bypassed_limit_is_one_and_an_unknown_one_is_absent() -> None:
    """1 and 0 only where a system enforces and the usage is known. Of two generations one that bypasses is enough."""
    over, well, nobody, whole = pod("over"), pod("well"), pod("nobody"), pod("whole")
    old, new = pod("a", uid="old", terminating=True), pod("a", uid="new")
    limits = [
        limit(over, leaf(), 2 * GIB, enforced_by="hook", bypassed=True),
        limit(well, leaf(), 2 * GIB, enforced_by="hook", bypassed=False),
        limit(nobody, leaf(), 2 * GIB),
        limit(whole, leaf(), 2 * GIB, scope="pod", enforced_by="kernel", bypassed=False),
        limit(old, leaf(), 2 * GIB, enforced_by="hook", bypassed=True),
        limit(new, leaf(), 2 * GIB, enforced_by="hook"),
    ]
    text = page(snapshot(ONE_GPU, pods=[over, well, nobody, whole, old, new], limits=limits))
    assert series(text, "container_limit_bypassed", "pod", "container") == {
        ("over", "main"): 1,
        ("well", "main"): 0,
        ("whole", ""): 0,
        ("a", "main"): 1,
    }


def test_a_sum_over_time_that_is_unknown_has_no_sample() -> None:
    """A container whose memory and utilization were never known has its allocated time, and no other sum."""
    shared = device(gpu(memory=memory(used=GIB)), attributed=None, replicas=4)
    text = page(
        snapshot(
            shared,
            usages=[usage(pod(), leaf(), None)],
            pods=[pod()],
            allocations=[allocation(pod(), leaf())],
            steady_for=600,
        )
    )
    assert series(text, "container_allocated_seconds_total", "pod", "resource") == {
        ("trainer-0", "nvidia.com/gpu"): 150
    }
    assert "gpusteward_container_memory_byte_seconds" not in text and "gpusteward_container_sm_seconds" not in text
    assert series(text, "device_memory_byte_seconds_total", "part")["unknown",] == 600 * GIB
    assert series(text, "device_observed_seconds_total") == {(): 600}


def test_the_sums_of_a_device_that_is_gone_keep_their_labels() -> None:
    """Its index is remembered: other labels would be another series, and begin with a jump."""
    fact = snapshot(ONE_GPU, device(gpu(1, memory=memory(used=GIB)), attributed=GIB), steady_for=600)
    gone = replace(fact, devices=fact.devices[:1], gpus=fact.gpus[:1], gpus_present={gpu_uuid(0): 0})
    assert series(page(gone), "device_observed_seconds_total", "gpu", "uuid") == {
        ("0", gpu_uuid(0)): 600,
        ("1", gpu_uuid(1)): 600,
    }
