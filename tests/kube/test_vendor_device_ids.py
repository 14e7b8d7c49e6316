"""What the ids of other vendors' device plugins mean, and that none of them is taken for another device."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import gpu, leaf, pod
from exporter.kube.allocations import AllocationsView, Holding, allocations
from exporter.kube.combining import combine
from exporter.kube.device_ids import DeviceIndex, resolve, resolve_claimed
from exporter.model import Allocation, DeviceKey, Gpu, GpuInstance, GpuUuid, Inventory
from exporter.model.vendors import HUAWEI, VENDORS, DeviceId, device_id

CARD = "12345678-1111-2222-3333-000012345678"
MLU = Gpu(GpuUuid(f"MLU-{CARD}"), 0, "Cambricon MLU590", vendor="cambricon", minor=0)
BI = Gpu(GpuUuid("GPU-aaaaaaaa-1111-2222-3333-444444444444"), 0, "BI-V150", vendor="iluvatar", minor=0)
XPU = Gpu(GpuUuid("02K00Y6217V000X7"), 0, "XPU", vendor="kunlunxin")
GCU = Gpu(GpuUuid("T6D410120211"), 0, "GCU S60", vendor="enflame")
NPU = Gpu(GpuUuid("E0F4EE64-802061B1"), 0, "Ascend 910B2", vendor="huawei", minor=6)
SPLIT = replace(NPU, uuid=GpuUuid("E281A66C"), index=1, minor=0, mig=True, instances=(GpuInstance(100, "vir02", ()),))
INDEX = DeviceIndex.of((replace(gpu(0), minor=0), MLU, BI, XPU, GCU, NPU, SPLIT))


@pytest.mark.parametrize(
    ("resource", "text", "meant", "replica"),
    [
        ("cambricon.com/mlu", f"MLU-{CARD}", MLU, None),
        ("cambricon.com/mlu.share", f"MLU-{CARD}-_-3", MLU, 3),
        ("cambricon.com/mlu.smlu", f"MLU-{CARD}-4m.24gb-2", MLU, 2),
        ("cambricon.com/mlu.mim-2m.8gb", f"MLU-{CARD}-mim-{CARD}", MLU, 0),
        ("iluvatar.com/gpu", BI.uuid, BI, None),
        ("iluvatar.ai/gpu", f"{BI.uuid}::2", BI, 2),
        ("kunlunxin.com/xpu", XPU.uuid, XPU, None),
        ("enflame.com/gcu", GCU.uuid, GCU, None),
    ],
)
def test_an_id_means_its_device(resource: str, text: str, meant: Gpu, replica: int | None) -> None:
    """Each form that a vendor's plugin writes is resolved, whole or as a share."""
    parsed = device_id(resource, text)
    assert parsed is not None and parsed.replica == replica
    assert resolve(parsed, INDEX) == DeviceKey(meant.uuid)


@pytest.mark.parametrize(
    ("resource", "text"),
    [
        ("huawei.com/Ascend910", "Ascend910-6"),  # a stand-in under Volcano
        ("huawei.com/Ascend910B2", f"{NPU.uuid}-0"),
        ("iluvatar.ai/BI-V150-vgpu", f"{BI.uuid}::0"),  # HAMi: by annotation
        ("kunlunxin.com/vxpu", XPU.uuid),
        ("cambricon.com/vmlu", f"MLU-{CARD}"),
        ("enflame.com/shared-gcu", "0-1"),
        ("enflame.com/gcu", "0"),
        ("metax-tech.com/gpu", "0"),
        ("mthreads.com/gpu", "nvidia0"),
        ("cambricon.com/mlu", f"MLU-{CARD}-_-"),
        ("cambricon.com/mlu", CARD),
        ("cambricon.com/mlu", "0"),
    ],
)
def test_an_id_that_names_no_device_surely_names_none(resource: str, text: str) -> None:
    """Where the plugin follows another order, or the form is not known, the id resolves to no device."""
    assert resolve(device_id(resource, text), INDEX) is None


@given(st.text(max_size=60), st.sampled_from([domain for vendor in VENDORS for domain in vendor.domains]))
def test_any_text_is_some_device_or_none(text: str, domain: str) -> None:
    """Whatever a plugin writes, the answer is a device that is there, or none."""
    for name in ("gpu", "x-vgpu", "mlu"):
        found = resolve(device_id(f"{domain}/{name}", text), INDEX)
        assert found is None or found in INDEX.keys
    HUAWEI.annotated_id(text)


def test_a_claimed_npu_is_the_one_of_its_index() -> None:
    """HAMi's DRA driver for Ascend counts as the vendor's library does, and its UUID is made up of node and index."""
    driver = "ascend.project-hami.io"
    assert resolve_claimed(driver, "npu-0-0", "node-1-0", INDEX) == DeviceKey(NPU.uuid)
    assert resolve_claimed(driver, "npu-7-0", "node-1-7", INDEX) is None
    assert resolve_claimed(driver, "npu-1-0", "node-1-1", INDEX) is None, "it is divided, and no vNPU is named"


def test_a_number_means_the_device_of_its_own_vendor() -> None:
    """Each vendor counts from 0: minor and index are looked up among its own."""
    assert resolve(device_id("nvidia.com/gpu", "nvidia0"), INDEX) == leaf(0)
    assert resolve(device_id("nvidia.com/gpu", "0"), INDEX) == leaf(0)
    assert resolve(DeviceId(minor=0, vendor="cambricon"), INDEX) == DeviceKey(MLU.uuid)
    assert resolve(DeviceId(index=0, vendor="amd"), INDEX) is None
    others = DeviceIndex.of((MLU, BI, XPU))
    assert resolve(device_id("nvidia.com/gpu", "nvidia0"), others) is None


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("Ascend910-6", DeviceId(minor=6, vendor="huawei")),
        (" Ascend310P-12", DeviceId(minor=12, vendor="huawei")),
        ("Ascend910-6-3", DeviceId(minor=6, vendor="huawei")),  # a soft share
        ("Ascend910-2c-100-6", DeviceId(minor=6, gpu_instance=100, vendor="huawei")),
        ("Ascend310P-4c.3cpu.ndvpp-101-0", DeviceId(minor=0, gpu_instance=101, vendor="huawei")),
        ("Ascend910", None),
        ("davinci6", None),
        ("", None),
    ],
)
def test_what_mindcluster_really_gave(text: str, meant: DeviceId | None) -> None:
    """The annotation names /dev/davinci<physical id>, and of a vNPU its number."""
    assert HUAWEI.annotated_id(text) == meant


def handed(annotation: str, *ids: str, containers: tuple[str, ...] = ("main",)) -> tuple[Allocation, ...]:
    """Say what a pod with this annotation was handed, when the kubelet counts `ids` for each container."""
    mine = replace(pod("npu"), annotations={HUAWEI.annotation: annotation})
    holdings = tuple(Holding(mine.namespace, mine.name, name, "huawei.com/Ascend910", ids) for name in containers)
    names = Inventory(pods={mine.uid: mine})
    return combine(names, AllocationsView(holdings=holdings, known=True), (NPU, SPLIT), {}).allocations


def test_the_annotation_of_mindcluster_beats_the_kubelets_ids() -> None:
    """Under Volcano the kubelet's id is a stand-in: what the plugin wrote into the pod is what it gave."""
    assert handed("Ascend910-6", "Ascend910-0") == (
        Allocation("team-a", "npu", "main", "huawei.com/Ascend910", DeviceKey(NPU.uuid)),
    )
    (part,) = handed("Ascend910-2c-100-0", "Ascend910-2c-101-7")
    assert part.device == DeviceKey(SPLIT.uuid, 100)


@pytest.mark.parametrize("share", ["Ascend910-0-{}", "npu-core-{}"])
def test_an_npu_is_one_however_many_shares_of_it_the_kubelet_counts(share: str) -> None:
    """A soft share is so many percents, a vNPU made for the pod so many AI cores; the annotation names the NPU."""
    (part,) = handed("Ascend910-6", *(share.format(number) for number in range(25)))
    assert part.device == DeviceKey(NPU.uuid)


@pytest.mark.parametrize(
    ("annotation", "ids", "containers"),
    [
        ("Ascend910-6,Ascend910-0", ("Ascend910-0",), ("main",)),  # more than the kubelet counted
        ("Ascend910-6", ("Ascend910-0",), ("main", "side")),  # whose of the two
        ("Ascend910-9", ("Ascend910-0",), ("main",)),  # not there
        ("Ascend910-0", ("Ascend910-0",), ("main",)),  # divided: which part
        ("[]", ("Ascend910-0",), ("main",)),
        ("Ascend910-6", (), ()),
    ],
)
def test_an_annotation_that_does_not_fit_names_nothing(
    annotation: str, ids: tuple[str, ...], containers: tuple[str, ...]
) -> None:
    """A user may write annotations: one that disagrees with the kubelet, or names no device, hands out no device."""
    assert handed(annotation, *ids, containers=containers) == ()


def test_two_generations_of_a_pod_are_not_told_apart() -> None:
    """The kubelet names pods and not UIDs: where two of one name disagree, neither annotation counts."""
    first, second = (
        replace(pod("npu", uid=uid), annotations={HUAWEI.annotation: f"Ascend910-{uid}"}) for uid in ("6", "7")
    )
    view = AllocationsView(holdings=(Holding("team-a", "npu", "main", "huawei.com/Ascend910", ("Ascend910-0",)),))
    names = Inventory(pods={first.uid: first, second.uid: second})
    assert combine(names, view, (NPU,), {}).allocations == ()
    assert allocations(view, (NPU,)) == ()
