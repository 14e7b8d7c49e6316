"""The unit of a resource is checked against the node. One that does not fit is reported and never enforced."""

from collections.abc import Callable
from fractions import Fraction

import pytest

from exporter.limits import LeafDevice, resolve
from exporter.limits.calibration import Fit, calibrate
from exporter.limits.loading import builtin
from exporter.limits.rows import Row
from exporter.model import DeclaredPod, DeviceKey, GpuUuid, NodeFacts

MIB, GIB = 2**20, 2**30

Pod = Callable[..., DeclaredPod]
Gpus = Callable[..., tuple[LeafDevice, ...]]


def row(key: str) -> Row:
    return next(row for system in builtin() for row in system.rows if row.key == key and row.calibrate)


@pytest.mark.parametrize(
    ("key", "capacity", "memory", "unit"),
    [
        ("aliyun.com/gpu-mem", "14", [15109], GIB),
        ("aliyun.com/gpu-mem", "15109", [15109], MIB),
        ("aliyun.com/gpu-mem", "30218", [15109, 15109], MIB),
        ("volcano.sh/vgpu-memory", "81559", [81559], MIB),
        ("volcano.sh/vgpu-memory", "8155", [81559], 10 * MIB),
        ("volcano.sh/gpu-memory", "15109", [15109], MIB),
        ("tencent.com/vcuda-memory", "29", [7611], 256 * MIB),
        ("koordinator.sh/gpu-memory", "15843721216", [15109], 1),
        ("nvidia.com/mps-memory", "22", [23028], GIB),
        ("volcano.sh/gpu-mem.128Mi", "118", [15109], 128 * MIB),
    ],
)
def test_fits(key: str, capacity: str, memory: list[int], unit: int, gpus: Gpus) -> None:
    """The node's own capacity chooses GiB or MiB, and finds a factor."""
    found = calibrate(row(key), NodeFacts({key: capacity}), gpus(*(size * MIB for size in memory)))
    assert (found.unit, found.fit) == (Fraction(unit), Fit.FITS)


@pytest.mark.fault(63)
@pytest.mark.parametrize(
    ("key", "capacity"),
    [
        ("aliyun.com/gpu-mem", "100"),
        ("nvidia.com/mps-memory", "8"),
        ("volcano.sh/vgpu-memory", "163118"),  # twice the memory: the plugin scales it, and a share of it means less
        ("volcano.sh/vgpu-memory", "3"),
    ],
)
def test_what_does_not_fit(key: str, capacity: str, pod: Pod, gpus: Gpus) -> None:
    """A unit that does not fit gives no limit, and says what it saw."""
    node, devices = NodeFacts({key: capacity}), gpus(81559 * MIB)
    assert calibrate(row(key), node, devices).fit is Fit.MISFIT
    (limit,) = resolve(pod({key: "2"}), node, devices, builtin()).limits
    assert limit.bytes is None
    assert not limit.enforceable
    assert any("the unit does not fit" in problem for problem in limit.problems)


def test_a_choice_that_nothing_decides(pod: Pod, gpus: Gpus) -> None:
    """GiB or MiB, and no capacity that decides: the usual unit is shown, and no pod is judged by it."""
    (limit,) = resolve(pod({"aliyun.com/gpu-mem": "4"}), NodeFacts(), gpus(16 * GIB), builtin()).limits
    assert limit.bytes == 4 * GIB
    assert not limit.enforceable
    assert any("unit assumed" in problem for problem in limit.problems)


def test_a_choice_that_only_one_can_be(pod: Pod) -> None:
    """8000 GiB is no device: without a node, such a number is read as MiB, and no pod is judged by it."""
    (limit,) = resolve(pod({"aliyun.com/gpu-mem": "8k"}), None, (), builtin()).limits
    assert (limit.bytes, limit.enforceable) == (8000 * MIB, False)


def test_no_choice_needs_no_capacity(pod: Pod, gpus: Gpus) -> None:
    """A unit that has only one meaning holds, also where it cannot be checked."""
    (limit,) = resolve(pod({"nvidia.com/mps-memory": "8"}), NodeFacts(), gpus(16 * GIB), builtin()).limits
    assert limit.bytes == 8 * GIB
    assert limit.enforceable


@pytest.mark.parametrize(("capacity", "expected"), [("15", 3 * GIB), ("15109", 3 * MIB)])
def test_offline_by_what_is_possible(capacity: str, expected: int, pod: Pod) -> None:
    """Without the devices' memory, a device of 15 MiB or of 15 TiB is not believed."""
    node = NodeFacts({"aliyun.com/gpu-mem": capacity, "aliyun.com/gpu-count": "1"})
    (limit,) = resolve(pod({"aliyun.com/gpu-mem": "3"}), node, (), builtin()).limits
    assert limit.bytes == expected
    assert not limit.enforceable


GPU0 = "GPU-00000000-1111-2222-3333-444444444444"
HAMI = "hami.io/vgpu-devices-allocated"
SCALED = {
    "hami-nvidia": ({"nvidia.com/gpu": "1"}, "nvidia.com/gpumem", HAMI, f"{GPU0},NVIDIA,{{}},0:;"),
    "vgpu-manager": (
        {"nvidia.com/vgpu-number": "1"},
        "nvidia.com/vgpu-memory",
        "nvidia.com/real-allocated",
        f"main[0_{GPU0}_10_{{}}]",
    ),
    "hygon": ({"hygon.com/dcunum": "1"}, "hygon.com/dcumem", "hami.io/dcu-devices-allocated", "DCU-0,DCU,{},60:;"),
    "ascend-hami": (
        {"huawei.com/Ascend910B3": "1"},
        "huawei.com/Ascend910B3-memory",
        "huawei.com/Ascend910B3",
        '[{{"UUID":"NPU-1","memory":{}}}]',
    ),
}
"""Of each system with a factor: the count, the resource in its units, the annotation in MiB and its form."""

FACTORS = [(3, 1024, 3072), (800, 10, 8000), (4000, 1, 4000), (4, 1000, 4000)]


@pytest.mark.parametrize("written", FACTORS, ids=str)
@pytest.mark.parametrize("system", list(SCALED))
def test_a_factor_that_the_scheduler_shows(system: str, written: tuple[int, int, int], pod: Pod, gpus: Gpus) -> None:
    """Where the scheduler's annotation is a whole multiple of the resource, the annotation is right: 3 are 3 GiB."""
    amount, factor, granted = written
    count, key, annotation, form = SCALED[system]
    asked = pod(count | {key: str(amount)}, annotations={annotation: form.format(granted)})
    devices = gpus(16 * GIB) if system in {"hami-nvidia", "vgpu-manager"} else ()
    (limit,) = resolve(asked, None, devices, builtin()).limits
    assert (limit.bytes, limit.system) == (granted * MIB, system)
    assert not [problem for problem in limit.problems if "contradict" in problem]
    assert not [why for why in limit.report_only if "unit" in why]
    if factor > 1:
        assert [c.why for c in limit.candidates if c.key == key] == [
            f"taken, multiplied by the installation's factor {factor}"
        ]


@pytest.mark.parametrize("system", list(SCALED))
def test_a_factor_that_nothing_shows(system: str, pod: Pod) -> None:
    """The resource alone, with the factor open: 3 units are no 3 MiB, and 3000 are reported and not enforced."""
    count, key, _, _ = SCALED[system]
    (small,) = resolve(pod(count | {key: "3"}), None, (), builtin()).limits
    assert (small.bytes, small.enforceable) == (None, False)
    assert any("each installation chooses it; an operator can" in problem for problem in small.problems)
    (likely,) = resolve(pod(count | {key: "3000"}), None, (), builtin()).limits
    assert (likely.bytes, likely.enforceable) == (3000 * MIB, False)
    assert any("may be larger on this installation" in why for why in likely.report_only)


def test_the_annotation_alone_is_in_mib(pod: Pod, gpus: Gpus) -> None:
    """No factor changes what the scheduler wrote: a pod without an amount of its own has the annotation's."""
    asked = pod({"nvidia.com/gpu": "1"}, annotations={HAMI: f"{GPU0},NVIDIA,3072,0:;"})
    (limit,) = resolve(asked, None, gpus(16 * GIB), builtin()).limits
    assert (limit.bytes, limit.enforceable) == (3 * GIB, True)


def test_no_factor_fits(pod: Pod, gpus: Gpus) -> None:
    """An annotation that is no whole multiple says no factor: the smaller amount is reported, the tiny one is none."""
    for amount, expected in (("3000", 3000 * MIB), ("3", 10000 * MIB)):
        asked = pod({"nvidia.com/gpumem": amount}, annotations={HAMI: f"{GPU0},NVIDIA,10000,0:;"})
        (limit,) = resolve(asked, None, gpus(16 * GIB), builtin()).limits
        assert limit.bytes == expected
        assert limit.enforceable == (amount == "3")


def test_a_factor_that_was_first_seen_stays(pod: Pod, gpus: Gpus) -> None:
    """A pod that takes the scheduler's annotation away, or raises it, keeps the factor and the limit of before."""
    devices, resources = gpus(16 * GIB), {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "3"}
    first = resolve(pod(resources, annotations={HAMI: f"{GPU0},NVIDIA,3072,0:;"}), None, devices, builtin())
    for later in ({}, {HAMI: f"{GPU0},NVIDIA,6144,0:;"}, {HAMI: "garbage"}):
        now = resolve(pod(resources, annotations=later), None, devices, builtin(), first.first_seen)
        limit = now.on(DeviceKey(GpuUuid(GPU0)), "main")
        assert limit is not None
        assert (limit.bytes, limit.enforceable) == (3 * GIB, True)


def test_a_factor_that_the_node_says(pod: Pod) -> None:
    """vgpu-manager writes its factor on the node: the resource alone is enough."""
    said = '{"deviceSplit":10,"coresScaling":1,"memoryFactor":%s,"memoryScaling":1}'
    asked = pod({"nvidia.com/vgpu-number": "1", "nvidia.com/vgpu-memory": "3"})
    for text, expected in (
        (said % 1024, 3 * GIB),
        (said % 0, None),
        (said % '"8"', None),
        ("[", None),
        ("[" * 9999, None),
    ):
        node = NodeFacts(annotations={"nvidia.com/node-config-info": text})
        (limit,) = resolve(asked, node, (), builtin()).limits
        assert (limit.bytes, limit.enforceable) == (expected, expected is not None)
        if expected:
            assert {c.why for c in limit.candidates if c.taken} == {
                "taken, multiplied by the installation's factor 1024"
            }


def test_a_small_amount_with_an_assumed_unit(pod: Pod) -> None:
    """Volcano's annotation is in the same units: where no node is known, 3 of them are no 3 MiB either."""
    (limit,) = resolve(pod({"volcano.sh/vgpu-memory": "3"}), None, (), builtin()).limits
    assert limit.bytes is None
    (limit,) = resolve(pod({"volcano.sh/gpu-memory": "3"}), None, (), builtin()).limits
    assert limit.bytes is None


OLD = f"{GPU0},10,{{}},100,NVIDIA-Tesla T4,0,true:"
NEW = f'[{{{{"id":"{GPU0}","index":0,"count":10,"devmem":{{}},"devcore":100,"type":"NVIDIA-Tesla T4","health":true}}}}]'


@pytest.mark.parametrize("form", [OLD, NEW], ids=["2.4", "2.5"])
@pytest.mark.parametrize(
    ("resources", "annotations"),
    [
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"}, {}),
        ({"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}, {}),
        ({"nvidia.com/gpu": "1"}, {"hami.io/vgpu-devices-allocated": f"{GPU0},NVIDIA,8192,0:;"}),
    ],
    ids=["MiB", "percent", "annotation"],
)
def test_what_hami_registers(
    form: str, resources: dict[str, str], annotations: dict[str, str], pod: Pod, gpus: Gpus
) -> None:
    """HAMi can hand out twice the memory that is there (deviceMemoryScaling): then half of it is no half of the GPU."""
    asked, devices = pod(resources, annotations=annotations), gpus(16 * GIB)
    true, scaled = (
        NodeFacts(annotations={"hami.io/node-nvidia-register": form.format(size)}) for size in (16384, 32768)
    )
    (limit,) = resolve(asked, true, devices, builtin()).limits
    assert (limit.bytes, limit.enforceable) == (8 * GIB, True)
    (limit,) = resolve(asked, scaled, devices, builtin()).limits
    assert (limit.bytes, limit.enforceable) == (None, False)
    assert any("the unit does not fit" in problem and "32 GiB" in problem for problem in limit.problems)


@pytest.mark.parametrize(
    "text", ["", "[", "[1]", "{}", "a,b,c:", f"{GPU0},1,-5,:", f"{GPU0},1,{'9' * 5000}:", "[" * 9999]
)
def test_a_register_that_cannot_be_read(text: str, pod: Pod, gpus: Gpus) -> None:
    """What a node registers illegibly says nothing about its devices, for or against."""
    node = NodeFacts(annotations={"hami.io/node-nvidia-register": text})
    (limit,) = resolve(pod({"nvidia.com/gpumem": "8192"}), node, gpus(16 * GIB), builtin()).limits
    assert (limit.bytes, limit.enforceable) == (8 * GIB, True)


@pytest.mark.parametrize(("capacity", "expected"), [("16384", 4 * GIB), ("1638", 4 * GIB), ("32768", None)])
def test_a_share_of_what_is_advertised(capacity: str, expected: int | None, pod: Pod, gpus: Gpus) -> None:
    """Volcano's percent are of what the node advertises, with any factor; where that is scaled, of no GPU."""
    node = NodeFacts({"volcano.sh/vgpu-memory": capacity})
    (limit,) = resolve(pod({"volcano.sh/vgpu-memory-percentage": "25"}), node, gpus(16 * GIB), builtin()).limits
    assert limit.bytes == expected
    assert any("the unit does not fit" in problem for problem in limit.problems) == (expected is None)
