"""Each system's pods, as that system writes them, resolve to what the system means (the fixtures name the sources)."""

from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest

from exporter.limits import LeafDevice, Resolution
from exporter.model import Sharing
from exporter.objects.manifest import Manifest

MIB, GIB = 2**20, 2**30
GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
V100_A = "GPU-00552014-5c87-89ac-b1a6-7b53aa24b0ec"
V100_B = "GPU-0fc3eda5-e98b-a25b-5b0d-cf5c855d1448"

FIXTURES = Path(__file__).parent / "fixtures"

Expected = tuple[str | None, str | None, int | None, str, str, str, str]
"""Container (None for the pod or a claim), device, bytes, system, source, scope, enforced by."""

WHOLE = {
    "amd-whole": ("amd", "driver", "amd"),
    "intel-whole": ("intel-gas", "none", "intel"),
    "intel-whole-i915": ("intel-gas", "none", "intel"),
    "ascend-whole": ("ascend-mindcluster", "hardware", "huawei"),
    "ascend-whole-typed": ("ascend-mindcluster", "hardware", "huawei"),
    "npu-whole": ("ascend-mindcluster", "hardware", "huawei"),
    "hygon-whole": ("hygon", "hardware", "hygon"),
    "cambricon-whole": ("cambricon", "hardware", "cambricon"),
    "cambricon-typed": ("cambricon", "hardware", "cambricon"),
    "iluvatar-whole": ("iluvatar", "hardware", "iluvatar"),
    "iluvatar-whole-older": ("iluvatar", "hardware", "iluvatar"),
    "metax-whole": ("metax", "hardware", "metax"),
    "mthreads-whole": ("mthreads", "hardware", "mthreads"),
    "enflame-whole": ("enflame", "hardware", "enflame"),
    "kunlun-whole": ("kunlun", "driver", "kunlunxin"),
}
"""Pods with a whole card: the system, the enforcement elsewhere, the vendor."""

OFFLINE: dict[tuple[str, str], list[Expected]] = {
    ("nvidia-gpu", "trainer"): [("main", None, 81559 * MIB, "nvidia-gpu", "resource", "container", "hardware")],
    ("nvidia-timeslicing", "plain"): [("main", None, None, "nvidia-timeslicing", "resource", "container", "none")],
    ("nvidia-timeslicing", "annotated"): [("main", None, 8 * GIB, "gpusteward", "annotation", "container", "none")],
    ("nvidia-mps", "two-replicas"): [("main", None, 3840 * MIB, "nvidia-mps", "resource", "process", "mps")],
    ("nvidia-mps", "lowered"): [("main", None, GIB, "nvidia-mps", "env", "process", "mps")],
    ("nvidia-mps", "renamed"): [("main", None, 3840 * MIB, "nvidia-mps", "resource", "process", "mps")],
    ("gke", "mps"): [("main", None, 15356 * MIB, "gke-mps", "resource", "process", "mps")],
    ("gke", "mps-lowered"): [("main", None, 2 * GIB, "gke-mps", "env", "process", "mps")],
    ("gke-timesharing", "ts"): [("main", None, None, "gke-timesharing", "resource", "container", "none")],
    ("nvidia-mig", "whole-instance"): [("main", None, 19968 * MIB, "nvidia-mig", "resource", "instance", "hardware")],
    ("nvidia-mig", "replica"): [("main", None, None, "nvidia-mig", "resource", "instance", "none")],
    ("nvidia-mig-single", "instance"): [
        ("main", None, 4864 * MIB, "nvidia-mig-single", "resource", "instance", "hardware")
    ],
    ("nvidia-dra", "shared-0"): [(None, GPU0, 10 * GIB, "nvidia-dra", "claim", "claim", "none")],
    ("nvidia-dra", "unlimited-0"): [(None, GPU0, None, "nvidia-dra", "claim", "claim", "none")],
    ("nvidia-dra", "mps-pod"): [
        (None, GPU0, None, "nvidia-dra", "claim", "claim", "none"),
        ("main", GPU0, 10 * GIB, "nvidia-dra", "claim-config", "process", "mps"),
    ],
    ("nvidia-dra", "eighth-0"): [(None, GPU0, None, "nvidia-dra", "claim", "claim", "none")],
    ("nvidia-dra", "mps-per-device-0"): [
        (None, GPU0, None, "nvidia-dra", "claim", "claim", "none"),
        ("main", GPU0, 6 * GIB, "nvidia-dra", "claim-config", "process", "mps"),
    ],
    ("nvidia-dra", "sliced-0"): [(None, GPU0, None, "nvidia-dra", "claim", "claim", "none")],
    ("gpu-fractioning", "fractioned"): [
        ("main", GPU0, 10 * GIB, "gpu-fractioning", "annotation", "container", "driver"),
        ("side", GPU0, 2 * GIB, "gpu-fractioning", "annotation", "container", "driver"),
    ],
    ("gpu-fractioning", "by-environment"): [
        ("main", GPU0, 8 * GIB, "gpu-fractioning", "env", "container", "driver"),
    ],
    ("gpu-fractioning", "by-plural"): [("main", None, 4 * GIB, "gpu-fractioning", "env", "container", "driver")],
    ("gpu-fractioning", "by-request"): [
        ("plural", None, 2 * GIB, "gpu-fractioning", "env", "container", "driver"),
        ("singular", None, GIB, "gpu-fractioning", "env", "container", "driver"),
    ],
    ("gpu-fractioning", "earlier"): [
        ("cuda-vector-add", None, 16 * GIB, "gpu-fractioning", "annotation", "container", "driver"),
        ("side", None, 2 * GIB, "gpu-fractioning", "annotation", "container", "driver"),
    ],
    ("nvidia-vgpu", "virt-launcher-a10"): [("compute", None, None, "nvidia-vgpu", "resource", "container", "hardware")],
    ("nvidia-vgpu", "virt-launcher-vm"): [("compute", None, None, "nvidia-vgpu", "resource", "container", "hardware")],
    ("undeclared", "by-environment"): [("main", None, None, "undeclared", "env", "container", "none")],
    ("undeclared", "aws"): [("main", None, None, "undeclared", "resource", "container", "none")],
    ("nvshare", "nvshare-tf-matmul-1"): [("main", None, None, "nvshare", "resource", "container", "none")],
    ("alauda-mps", "half"): [("main", None, 8 * GIB, "alauda-mps", "resource", "container", "mps")],
    ("hami-nvidia", "two-containers"): [
        ("first", V100_B, 3000 * MIB, "hami-nvidia", "resource", "container", "hook"),
        ("second", V100_B, 5000 * MIB, "hami-nvidia", "resource", "container", "hook"),
    ],
    ("hami-nvidia", "percentage"): [
        ("main", V100_A, 16384 * MIB, "hami-nvidia", "resource", "container", "none"),
        ("main", V100_B, 16384 * MIB, "hami-nvidia", "resource", "container", "none"),
    ],
    ("hami-nvidia", "alauda"): [("main", None, 8000 * MIB, "hami-nvidia", "resource", "container", "hook")],
    ("hami-nvidia", "older"): [("main", V100_A, 10 * GIB, "hami-nvidia", "annotation", "container", "hook")],
    ("hami-nvidia", "oldest"): [("main", V100_A, 10 * GIB, "hami-nvidia", "annotation", "container", "hook")],
    ("hami-nvidia", "mig-mode"): [("main", V100_A, 8000 * MIB, "hami-nvidia", "resource", "container", "hardware")],
    ("hami-dra", "gpu-test-dra-native"): [(None, GPU0, 10 * GIB, "hami-dra", "claim", "claim", "hook")],
    ("volcano-vgpu", "factor"): [
        ("memory", V100_A, 3000 * MIB, "volcano-vgpu", "resource", "container", "hook"),
        ("percentage", V100_A, 8190 * MIB, "volcano-vgpu", "annotation", "container", "hook"),
    ],
    ("vgpu-manager", "vgpu"): [("main", GPU0, 1024 * MIB, "vgpu-manager", "resource", "container", "hook")],
    ("vgpu-manager-dra", "single-vgpu-pod"): [(None, GPU0, 4 * GIB, "vgpu-manager-dra", "claim", "claim", "none")],
    ("gpu-manager", "share"): [("main", "index 0", 2560 * MIB, "gpu-manager", "resource", "container", "hook")],
    ("gpu-manager", "whole"): [("main", None, None, "gpu-manager", "resource", "container", "none")],
    ("gpushare", "binpack-1-0"): [(None, "index 0", 5 * GIB, "gpushare", "resource", "pod", "none")],
    ("gpushare", "labelled"): [(None, None, 3 * GIB, "ack", "resource", "pod", "none")],
    ("gpushare-mib", "binpack-1-0"): [(None, None, 3000 * MIB, "gpushare", "resource", "pod", "none")],
    ("gpushare-forks", "cerit"): [(None, None, 4 * GIB, "gpushare", "resource", "pod", "none")],
    ("gpushare-forks", "rainbond"): [(None, None, 4000 * MIB, "gpushare", "resource", "pod", "none")],
    ("gpushare-forks", "gpu-share"): [(None, None, 4 * GIB, "gpushare", "resource", "pod", "none")],
    ("ack", "first-version"): [(None, "index 1", 3 * GIB, "ack", "resource", "pod", "kernel")],
    ("ack", "two-cards"): [
        (None, None, 4 * GIB, "ack", "resource", "pod", "kernel"),
        ("main", "index 0", 4 * GIB, "ack", "annotation", "container", "kernel"),
        ("main", "index 1", 4 * GIB, "ack", "annotation", "container", "kernel"),
    ],
    ("qgpu", "qgpu"): [("main", None, 5 * GIB, "qgpu", "resource", "container", "kernel")],
    ("qgpu", "two-cards"): [("main", None, 5 * GIB, "qgpu", "resource", "container", "kernel")],
    ("elastic-gpu", "cuda-gpu-test"): [("cuda", "index 0", 256 * MIB, "elastic-gpu", "resource", "container", "none")],
    ("elastic-gpu", "two-cards"): [
        ("cuda", "index 0", None, "elastic-gpu", "resource", "container", "none"),
        ("cuda", "index 1", None, "elastic-gpu", "resource", "container", "none"),
    ],
    ("elastic-gpu", "by-constant"): [("cuda", "index 1", 4 * GIB, "elastic-gpu", "resource", "container", "none")],
    ("vke-mgpu", "mgpu"): [
        ("one", "index 0", 3000 * MIB, "vke-mgpu", "resource", "container", "kernel"),
        ("two", "index 0", 3000 * MIB, "vke-mgpu", "resource", "container", "kernel"),
        ("two", "index 1", 3000 * MIB, "vke-mgpu", "resource", "container", "kernel"),
    ],
    ("cce", "xgpu"): [("main", None, 2 * GIB, "cce-xgpu", "resource", "container", "kernel")],
    ("cce", "fraction"): [("main", None, None, "cce-fraction", "resource", "container", "none")],
    ("cce-virtualized", "gpu-app"): [
        ("container-0", None, 12129 * MIB, "cce-xgpu", "resource", "container", "kernel"),
    ],
    ("baidu-cgpu", "cgpu"): [("main", None, 5 * GIB, "baidu-cgpu", "resource", "container", "kernel")],
    ("koordinator", "half"): [(None, "minor 1", 8 * GIB, "koordinator", "resource", "pod", "none")],
    ("koordinator", "older-share"): [(None, None, 8 * GIB, "koordinator", "resource", "pod", "none")],
    ("kai", "gpu-sharing"): [("gpu-workload", None, 4096 * MIB, "kai", "annotation", "container", "none")],
    ("kai", "runai-memory"): [("gpu-workload", None, 8 * GIB, "kai", "annotation", "container", "none")],
    ("nos", "slice"): [("main", None, 10 * GIB, "nos", "resource", "container", "mps")],
    ("tensor-fusion", "soft"): [(None, GPU0, 10 * GIB, "tensor-fusion", "annotation", "pod", "hook")],
    ("tensor-fusion", "shared"): [(None, None, 10 * GIB, "tensor-fusion", "annotation", "pod", "none")],
    ("kubeshare", "share"): [(None, None, GIB, "kubeshare", "label", "pod", "hook")],
    ("kubeshare", "by-annotation"): [(None, None, 3000 * MIB, "kubeshare", "annotation", "pod", "hook")],
    ("kubeshare", "placed"): [
        (None, GPU0, 3000 * MIB, "kubeshare", "annotation", "pod", "hook"),
        ("main", None, None, "undeclared", "env", "container", "none"),
    ],
    ("volcano-gpushare", "gpu-pod1"): [
        ("cuda-container", "index 0", GIB, "volcano-gpushare", "resource", "container", "none")
    ],
    ("volcano-gpushare", "gpu-pod2"): [
        ("cuda-container", "index 0", 15109 * MIB, "volcano-gpushare", "resource", "container", "none")
    ],
    ("open-simulator", "gpu-pod-00"): [(None, None, GIB, "open-simulator", "annotation", "pod", "none")],
    ("open-simulator", "gpu-pod-01"): [
        (None, "index 0", GIB, "open-simulator", "annotation", "pod", "none"),
        (None, "index 1", GIB, "open-simulator", "annotation", "pod", "none"),
    ],
    ("intel-dra", "test-inline-claim"): [
        (None, "flex-node-1/0000-03-00-0-0x56c0", None, "intel-dra", "claim", "claim", "hardware")
    ],
    ("amd-dra", "pod1"): [(None, "leto/gpu-0-128", None, "amd-dra", "claim", "claim", "driver")],
    ("amd-dra", "cpx-nps4-pod"): [(None, "leto/gpu-1-129", None, "amd-dra", "claim", "claim", "driver")],
    ("ascend-dra", "ascend-share-a"): [(None, "npu-node-1/npu-0-0", 8 * GIB, "ascend-dra", "claim", "claim", "hook")],
    ("accelerators", "intel-xe"): [("main", "index 0", 4 * GIB, "intel-gas", "resource", "container", "none")],
    ("accelerators", "intel-shared"): [("main", None, None, "intel-gas", "resource", "container", "none")],
    ("accelerators", "hami-amd-allocated"): [
        ("main", "GPU-amd-1", 4000 * MIB, "hami-amd", "resource", "container", "hook")
    ],
    ("accelerators", "ascend-template"): [
        ("main", "NPU-1", 20000 * MIB, "ascend-hami", "resource", "container", "hardware")
    ],
    ("accelerators", "ascend-soft"): [("main", "NPU-1", 16000 * MIB, "ascend-hami", "resource", "container", "hook")],
    **{
        ("accelerators", name): [("main", None, None, "ascend-mindcluster", "resource", scope, "hardware")]
        for name, scope in (
            ("mindcluster-910", "instance"),
            ("mindcluster-a2", "instance"),
            ("mindcluster-cpu", "instance"),
            ("mindcluster-cores", "container"),
        )
    },
    **{
        ("accelerators", name): [("main", None, None, system, "resource", "container", keeper)]
        for name, (system, keeper, _) in WHOLE.items()
    },
    ("accelerators", "enflame-shared"): [("main", None, None, "enflame", "resource", "container", "hardware")],
    ("accelerators", "ascend-whole-hami"): [
        ("main", None, None, "ascend-hami", "resource", "container", "hardware"),
        ("side", None, 16000 * MIB, "ascend-hami", "resource", "container", "hardware"),
    ],
    ("accelerators", "mindcluster-soft"): [(None, None, 16 * GIB, "ascend-soft", "annotation", "pod", "hook")],
    ("accelerators", "iluvatar-older"): [("main", None, 16 * GIB, "iluvatar", "resource", "container", "hook")],
    ("accelerators", "mthreads-placed"): [("main", "index 1", 8 * GIB, "mthreads", "resource", "container", "driver")],
    ("accelerators", "kunlun-allocated"): [("main", "XPU-1", 24 * GIB, "kunlun", "resource", "container", "driver")],
    **{
        ("accelerators", name): [("main", None, None, "counted", "resource", "container", "hardware")]
        for name in ("neuron-device", "vastai", "biren")
    },
    ("accelerators", "intel"): [
        ("main", "index 0", 250_000_000, "intel-gas", "resource", "container", "none"),
        ("main", "index 1", 250_000_000, "intel-gas", "resource", "container", "none"),
    ],
    ("accelerators", "amd"): [("main", None, None, "amd", "resource", "instance", "driver")],
    ("accelerators", "hami-amd"): [("main", None, 4000 * MIB, "hami-amd", "resource", "container", "hook")],
    ("accelerators", "ascend"): [("main", None, 16000 * MIB, "ascend-hami", "resource", "container", "hook")],
    ("accelerators", "mindcluster"): [("main", None, None, "ascend-mindcluster", "resource", "instance", "hardware")],
    ("accelerators", "hygon"): [("main", "DCU-0", 2000 * MIB, "hygon", "resource", "container", "driver")],
    ("accelerators", "cambricon"): [("main", "index 0", 5 * GIB, "cambricon", "resource", "container", "hardware")],
    ("accelerators", "iluvatar"): [("main", None, 16 * GIB, "iluvatar", "resource", "container", "hook")],
    ("accelerators", "metax"): [("main", None, 4 * GIB, "metax", "resource", "container", "driver")],
    ("accelerators", "metax-suffix"): [("main", "GPU-mx-1", 4 * GIB, "metax", "resource", "container", "driver")],
    ("accelerators", "mthreads"): [("main", None, 8 * GIB, "mthreads", "resource", "container", "driver")],
    ("accelerators", "enflame"): [("main", None, 24 * GIB, "enflame", "resource", "container", "hardware")],
    ("accelerators", "enflame-profile"): [
        ("main", "gcu-1-enflame-drs-0", 20 * GIB, "enflame", "annotation", "container", "hardware")
    ],
    ("accelerators", "kunlun"): [("main", None, 24576 * MIB, "kunlun", "resource", "container", "driver")],
    ("accelerators", "neuron"): [("main", None, None, "counted", "resource", "container", "hardware")],
}
"""What the manifests alone tell, with the node's labels where the fixture has a node."""

COMPUTE = {
    ("nvidia-mps", "two-replicas"): Fraction(25, 100),
    ("alauda-mps", "half"): Fraction(1, 2),
    ("gke", "mps"): Fraction(66, 100),
    ("qgpu", "qgpu"): Fraction(1, 5),
    ("elastic-gpu", "two-cards"): Fraction(1),
    ("gpu-manager", "share"): Fraction(1, 2),
    ("vke-mgpu", "mgpu"): Fraction(3, 10),
    ("cce", "xgpu"): Fraction(1, 10),
    ("baidu-cgpu", "cgpu"): Fraction(1, 4),
    ("ack", "two-cards"): Fraction(3, 10),
    ("koordinator", "shared-two"): Fraction(1, 2),
    ("nvidia-dra", "mps-pod"): Fraction(1, 2),
    ("hami-nvidia", "two-containers"): Fraction(1, 2),
    ("hami-nvidia", "oldest"): Fraction(3, 10),
    ("volcano-vgpu", "factor"): Fraction(1, 2),
    ("vgpu-manager", "vgpu"): Fraction(1, 10),
    ("hami-dra", "gpu-test-dra-native"): Fraction(1, 2),
    ("vgpu-manager-dra", "single-vgpu-pod"): Fraction(1, 2),
    ("ascend-dra", "ascend-share-a"): Fraction(1, 2),
    ("kubeshare", "share"): Fraction(1, 2),
    ("tensor-fusion", "soft"): Fraction(3, 10),
    ("koordinator", "older-percent"): Fraction(1, 2),
    ("accelerators", "iluvatar-older"): Fraction(1, 2),
    ("accelerators", "hami-amd-allocated"): Fraction(3, 10),
    ("accelerators", "mthreads"): Fraction(1, 2),
    ("accelerators", "intel"): Fraction(1, 2),
}

SHARES = [
    ("baidu-cgpu", "percent", 32 * GIB, 8 * GIB),
    ("cce", "fraction", 20 * GIB, 2 * GIB),
    ("kai", "non-default", 40 * GIB, 20 * GIB),
    ("kai", "two-devices", 40 * GIB, 20 * GIB),
    ("kai", "runai-fraction", 40 * GIB, 20 * GIB),
    ("koordinator", "older-ratio", 16 * GIB, 8 * GIB),
    ("koordinator", "older-percent", 16 * GIB, 8 * GIB),
    ("koordinator", "shared-two", 16 * GIB, 8 * GIB),
    ("koordinator", "isolated", 16 * GIB, 4 * GIB),
]
"""On devices of so many bytes, what each may hold."""

Resolved = Callable[..., Resolution]
Gpus = Callable[..., tuple[LeafDevice, ...]]


def rows(resolution: Resolution) -> list[Expected]:
    return [
        (
            limit.subject.container or None,
            limit.place.name if limit.place else None,
            limit.bytes,
            limit.system,
            limit.source.value,
            limit.scope.value,
            limit.enforced_by.value,
        )
        for limit in resolution.limits
    ]


@pytest.mark.parametrize(("system", "pod"), list(OFFLINE), ids=str)
def test_manifest_alone(system: str, pod: str, resolved: Resolved) -> None:
    """A pod's manifest and its node's are enough to know the limit, its system, its scope and what enforces it."""
    assert rows(resolved(system, pod)) == OFFLINE[system, pod]


@pytest.mark.parametrize(("system", "pod"), list(COMPUTE), ids=str)
def test_compute(system: str, pod: str, resolved: Resolved) -> None:
    """Cores, percentages and threads become a share of one device."""
    found = [limit.compute for limit in resolved(system, pod).limits if limit.compute is not None]
    assert found[0] == COMPUTE[system, pod]


@pytest.mark.parametrize(("system", "pod", "memory", "expected"), SHARES)
def test_shares_of_a_known_device(
    system: str, pod: str, memory: int, expected: int, resolved_on: Callable[..., Resolution]
) -> None:
    """Percentages and fractions are of the memory that the driver reports, and of nothing else."""
    limits = resolved_on(system, pod, memory, memory).limits
    assert [limit.bytes for limit in limits] == [expected]


@pytest.mark.parametrize(
    ("pod", "vendor", "memory"), [("hygon", "hygon", 2000 * MIB), ("hami-amd-allocated", "amd", 4000 * MIB)]
)
def test_a_name_that_only_a_vendors_plugin_knows_says_how_much_and_not_where(
    pod: str, vendor: str, memory: int, resolved: Resolved, gpus: Gpus
) -> None:
    """The limit holds where the container is, and nothing is remarked: the author wrote nothing wrong."""
    devices = gpus(64 * GIB, vendor=vendor)
    resolution = resolved("accelerators", pod, devices=devices)
    assert devices[0].key is not None
    limit = resolution.on(devices[0].key, "main")
    assert limit is not None and limit.bytes == memory
    assert resolution.problems == ()


def test_a_template_whose_name_tells_memory_is_no_whole_npu(resolved: Resolved, gpus: Gpus) -> None:
    """The vNPUs of an Atlas A2 have names such as `Ascend910-5c.1cpu.16g`; the whole NPU is not theirs."""
    devices = gpus(64 * GIB, vendor="huawei")
    (limit,) = resolved("accelerators", "mindcluster-a2", devices=devices).limits
    assert (limit.bytes, limit.scope.value) == (None, "instance")


def test_a_claim_of_an_npu_counts_on_the_npu_of_its_index(resolved: Resolved, gpus: Gpus) -> None:
    """HAMi's DRA driver for Ascend names an NPU by the number by which the vendor's library counts."""
    devices = gpus(64 * GIB, 64 * GIB, vendor="huawei")
    (limit,) = resolved("ascend-dra", "ascend-share-a", devices=devices).limits
    assert (limit.device, limit.bytes) == (devices[0].key, 8 * GIB)


def test_kai_rounds_up_to_hundredths(resolved: Resolved, gpus: Gpus) -> None:
    """4096 MiB of a T4 are 27 % of it, as KAI grants them."""
    total = 15360 * MIB
    (limit,) = resolved("kai", "gpu-sharing", devices=gpus(total)).limits
    assert limit.bytes == total * 27 // 100


def test_qgpu_divides_more_than_a_card_between_two(resolved: Resolved, gpus: Gpus) -> None:
    """160 percent and 10 GiB are 80 percent and 5 GiB of each of two cards, as qGPU grants them."""
    (limit,) = resolved("qgpu", "two-cards", devices=gpus(14 * GIB, 14 * GIB)).limits
    assert (limit.bytes, limit.compute, limit.problems) == (5 * GIB, Fraction(4, 5), ())
    (limit,) = resolved("qgpu", "qgpu", devices=gpus(14 * GIB, 14 * GIB)).limits
    assert (limit.bytes, limit.compute, limit.problems) == (5 * GIB, Fraction(1, 5), ())


@pytest.mark.parametrize("name", list(WHOLE))
def test_a_whole_card_declares_its_memory(name: str, resolved: Resolved, gpus: Gpus) -> None:
    """A pod with a whole card has the memory of the card as its limit; nothing is declared where the card is shared."""
    vendor = WHOLE[name][2]
    (limit,) = resolved("accelerators", name, devices=gpus(64 * GIB, vendor=vendor)).limits
    assert (limit.bytes, limit.problems) == (64 * GIB, ())
    shared = gpus(64 * GIB, vendor=vendor, replicas=4, sharing=Sharing.TIME_SLICING)
    assert [limit.bytes for limit in resolved("accelerators", name, devices=shared).limits] == [None]


def test_part_of_a_card_is_no_whole_card(resolved: Resolved, gpus: Gpus) -> None:
    """Beside an amount of memory the count of cards declares nothing: no contradiction, no whole card."""
    for name, vendor, expected in (
        ("ascend", "huawei", 16000 * MIB),
        ("hygon", "hygon", 2000 * MIB),
        ("cambricon", "cambricon", 5 * GIB),
        ("iluvatar", "iluvatar", 16 * GIB),
        ("metax", "metax", 4 * GIB),
        ("mthreads", "mthreads", 8 * GIB),
        ("enflame", "enflame", 24 * GIB),
        ("mindcluster-soft", "huawei", 16 * GIB),
        ("intel-xe", "intel", 4 * GIB),
    ):
        limits = resolved("accelerators", name, devices=gpus(64 * GIB, 64 * GIB, vendor=vendor)).limits
        assert {limit.bytes for limit in limits if limit.bytes} == {expected}, name
        assert not [problem for limit in limits for problem in limit.problems if "contradict" in problem], name


def test_a_request_in_the_environment_is_no_limit(resolved: Resolved) -> None:
    """The driver's soft limit alone is reported and not enforced; a limit in the environment is enforced."""
    assert [limit.enforceable for limit in resolved("gpu-fractioning", "by-request").limits] == [False, False]
    assert [limit.enforceable for limit in resolved("gpu-fractioning", "by-plural").limits] == [True]


def test_devices_are_found(resolved: Resolved, gpus: Gpus) -> None:
    """Minor numbers, indices and UUIDs become devices of the node."""
    devices = gpus(16 * GIB, 16 * GIB)
    keys = [limit.device for limit in resolved("koordinator", "half", devices=devices).limits]
    assert keys == [devices[1].key]
    keys = [limit.device for limit in resolved("elastic-gpu", "two-cards", devices=devices).limits]
    assert keys == [devices[0].key, devices[1].key]
    keys = [limit.device for limit in resolved("vgpu-manager", "vgpu", devices=devices).limits]
    assert keys == [devices[0].key]


def test_every_pod_is_expected(manifest: Callable[[str], Manifest]) -> None:
    """No fixture, and no pod in one, lies about that no test reads."""
    files = sorted(path.stem for path in FIXTURES.glob("*.yaml"))
    pods = {(name, pod.name) for name in files for pod in manifest(name).pods}
    assert pods == OFFLINE.keys() | {(system, pod) for system, pod, _, _ in SHARES}
