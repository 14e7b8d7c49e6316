"""What a device id means, and that nothing is made of one that means nothing."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import gpu, gpu_uuid, leaf
from exporter.kube.device_ids import DeviceIndex, RememberedIds, read_ids, resolve, resolve_claimed
from exporter.model import GpuInstance
from exporter.model.vendors import DeviceId, device_id

MIG_A, MIG_B, MIG_C = (f"MIG-{letter * 8}-1111-2222-3333-444444444444" for letter in "abc")


# Minor numbers in another order than the indices, as on boards whose driver probes in another order than the bus's.
WHOLE = replace(gpu(0), minor=1)
INSTANCES = (GpuInstance(3, "3g.40gb", (MIG_A,)), GpuInstance(9, "1g.10gb", (MIG_B, MIG_C)))
SPLIT = replace(gpu(1, instances=INSTANCES), minor=0)
INDEX = DeviceIndex.of((WHOLE, SPLIT))


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        (gpu_uuid(0), leaf(0)),
        (f"{gpu_uuid(0)}::0", leaf(0)),
        (f"{gpu_uuid(0)}::47", leaf(0)),
        (f"{gpu_uuid(0)}::10::3", leaf(0)),
        (MIG_A, leaf(1, 3)),
        (f"{MIG_A}::1", leaf(1, 3)),
        (MIG_C, leaf(1, 9)),
        (f"MIG-{gpu_uuid(1)}/9/1", leaf(1, 9)),
        (f"MIG-{gpu_uuid(1)}/9/1::2", leaf(1, 9)),
        ("nvidia1", leaf(0)),
        ("nvidia1/vgpu3", leaf(0)),
        ("nvidia0/gi3", leaf(1, 3)),
        ("nvidia0/gi9/vgpu0", leaf(1, 9)),
        ("0", leaf(0)),
        ("0::1", leaf(0)),
    ],
)
def test_an_id_means_its_leaf_device(text: str, meant: object) -> None:
    """Each form that a plugin writes is resolved: UUIDs, instances, minor numbers, indices; replicas, too."""
    assert resolve(device_id("nvidia.com/gpu", text), INDEX) == meant


@pytest.mark.parametrize(
    ("text", "replica"),
    [
        (gpu_uuid(0), None),
        (f"{gpu_uuid(0)}::7", 7),
        (f"{gpu_uuid(0)}::10::3", 3),
        (f"{MIG_A}::0", 0),
        ("nvidia0", None),
        ("nvidia0/vgpu2", 2),
        ("nvidia0/gi3", None),
        ("nvidia0/gi3/vgpu1", 1),
        (f"MIG-{gpu_uuid(1)}/9/1", None),
        ("1", None),
        ("1::5", 5),
    ],
)
def test_a_replica_is_told_from_the_whole(text: str, replica: int | None) -> None:
    """The replica's number comes out, and None for a whole device; number 0 is a replica like any other."""
    parsed = device_id("nvidia.com/gpu", text)
    assert parsed is not None
    assert parsed.replica == replica


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(f"{gpu_uuid(0)}-0", id="HAMi"),
        pytest.param(f"{gpu_uuid(0)}-memory-17", id="Volcano vGPU memory"),
        pytest.param(f"{gpu_uuid(0)}-_-17", id="gpushare"),
        pytest.param("0:1", id="MIG slot by index"),
        pytest.param("vcore-17", id="gpu-manager"),
        pytest.param("0000:3b:00.0", id="PCI address"),
        pytest.param("mlx5_0", id="not a GPU"),
        pytest.param("all", id="WSL"),
        pytest.param("", id="empty"),
        pytest.param("GPU-", id="no uuid"),
        pytest.param(f"{gpu_uuid(0)}::", id="no replica"),
        pytest.param(f"{gpu_uuid(0)}::-1", id="negative replica"),
        pytest.param(f"{gpu_uuid(0)}\n", id="newline"),
        pytest.param(f" {gpu_uuid(0)}", id="space"),
        pytest.param("nvidia", id="no minor"),
        pytest.param("nvidia0/vgpu", id="no vgpu"),
        pytest.param("nvidiactl", id="another device file"),
        pytest.param("\u0660", id="a digit of another script"),
    ],
)
def test_an_id_of_no_known_form_means_nothing(text: str) -> None:
    """Made-up ids, also those that carry a real UUID, resolve to no device."""
    assert device_id("nvidia.com/gpu", text) is None


@pytest.mark.parametrize(
    "text",
    [
        pytest.param(gpu_uuid(5), id="another GPU"),
        pytest.param(gpu_uuid(1), id="a whole GPU whose MIG is on"),
        pytest.param("MIG-dddddddd-1111-2222-3333-444444444444", id="MIG of an earlier set-up"),
        pytest.param(f"MIG-{gpu_uuid(1)}/4/0", id="no such instance"),
        pytest.param(f"MIG-{gpu_uuid(0)}/3/0", id="instance of a GPU without MIG"),
        pytest.param("nvidia7", id="no such minor number"),
        pytest.param("nvidia0", id="by minor number, MIG is on"),
        pytest.param("7", id="no such index"),
    ],
)
def test_a_device_that_is_not_there_is_nobodys(text: str) -> None:
    """An id of a known form that means none of the present devices resolves to none."""
    parsed = device_id("nvidia.com/gpu", text)
    assert parsed is not None
    assert resolve(parsed, INDEX) is None


def test_minor_numbers_are_not_guessed_from_indices() -> None:
    """A driver that does not report minor numbers leaves GKE's ids unresolved, even where there is one GPU only."""
    assert resolve(device_id("nvidia.com/gpu", "nvidia0"), DeviceIndex.of((gpu(0),))) is None


@pytest.mark.parametrize("resource", ["nvidia.com/gpu", "nvidia.com/gpu.shared"])
def test_a_bare_number_is_an_index_of_a_gpu_resource(resource: str) -> None:
    """Under the names that a GPU plugin gives, a number is an index."""
    assert device_id(resource, "1") == DeviceId(index=1)


@pytest.mark.parametrize("resource", ["aliyun.com/gpu-mem", "tencent.com/vcuda-memory", "nvidia.com/gpumem"])
def test_a_bare_number_of_another_resource_means_nothing(resource: str) -> None:
    """Plugins that count memory in devices number them: that is no index of a GPU."""
    assert device_id(resource, "1") is None


def test_ids_of_a_plugin_that_chooses_elsewhere_mean_nothing() -> None:
    """vgpu-manager writes ids with true UUIDs and then follows the pod's annotation."""
    assert device_id("nvidia.com/vgpu-number", f"{gpu_uuid(0)}::0") is None
    assert device_id("acme.com/renamed", f"{gpu_uuid(0)}::0") is not None


@pytest.mark.parametrize(
    ("driver", "device", "uuid", "meant"),
    [
        ("gpu.nvidia.com", "gpu-1", None, leaf(0)),
        ("gpu.nvidia.com", "gpu-1", gpu_uuid(0), leaf(0)),
        ("gpu.nvidia.com", "gpu-0-mig-1g10gb-19-0", MIG_B, leaf(1, 9)),
        ("hami-core-gpu.project-hami.io", "anything", gpu_uuid(0), leaf(0)),
        ("gpu.nvidia.com", "gpu-0-mig-1g10gb-19-0", None, None),
        ("gpu.nvidia.com", "gpu-0", None, None),
        ("gpu.nvidia.com", "gpu-vfio-1", None, None),
        ("gpu.amd.com", "gpu-1", None, None),
        ("gpu.nvidia.com", "gpu-1", "not-a-uuid", None),
    ],
)
def test_a_claimed_device_is_known_by_its_uuid_or_minor_number(
    driver: str, device: str, uuid: str | None, meant: object
) -> None:
    """The slice's UUID decides; without it NVIDIA's `gpu-<minor>` alone is understood, and only with MIG off."""
    assert resolve_claimed(driver, device, uuid, INDEX) == meant


@given(st.text(max_size=80) | st.from_regex(r"(GPU|MIG|nvidia)[-0-9a-f/:givpu]{0,60}", fullmatch=True))
def test_any_text_is_read_or_left(text: str) -> None:
    """No id that a plugin invents raises an error, and each id that resolves is one of the present devices."""
    meant = resolve(device_id("nvidia.com/gpu", text), INDEX)
    assert meant is None or meant in {leaf(0), leaf(1, 3), leaf(1, 9)}


def test_a_list_that_is_asked_for_in_each_round_is_read_once() -> None:
    """Plugins that count memory offer 80,000 ids. They are read when they change, also where no id means a device."""
    read = RememberedIds()
    for ids in ((f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1", f"{gpu_uuid(0)}::1", "anything"), ("anything",)):
        first = read("nvidia.com/gpu", ids)
        assert first == read_ids("nvidia.com/gpu", ids)
        for _ in range(3):
            read.begin_round()
            assert read("nvidia.com/gpu", tuple(text for text in ids)) is first
    (group,) = read_ids("nvidia.com/gpu", (f"{gpu_uuid(0)}::0", f"{gpu_uuid(0)}::1", f"{gpu_uuid(0)}::1"))
    assert (resolve(group.meant, INDEX), len(group.ids), group.texts) == (leaf(0), 2, 2)


def test_a_list_that_is_asked_for_no_longer_is_forgotten() -> None:
    """What the daemon remembers is bounded by what the kubelet lists."""
    read = RememberedIds()
    ids = (gpu_uuid(0),)
    first = read("nvidia.com/gpu", ids)
    read.begin_round()
    read.begin_round()
    assert read("nvidia.com/gpu", ids) is not first
