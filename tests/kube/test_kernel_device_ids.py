"""Ids of AMD's and Intel's plugins, and the devices that they mean on a node which has them."""

import pytest

from exporter.kube.allocations import AllocationsView, Holding, allocations, sharing
from exporter.kube.device_ids import DeviceIndex, resolve, resolve_claimed
from exporter.limits.decoders.claims import where_of
from exporter.limits.decoding import DeclarationError, locate
from exporter.limits.devices import leaf_devices
from exporter.model import ClaimedDevice, DeviceKey, Gpu, GpuInstance, GpuUuid, Sharing
from exporter.model.vendors import device_id

WHOLE, DIVIDED, ARC = GpuUuid("0000:19:00.0"), GpuUuid("0000:0a:00.0"), GpuUuid("0000:03:00.0")
NVIDIA = GpuUuid("GPU-00000000-1111-2222-3333-444444444444")
GPUS = (
    Gpu(NVIDIA, 0, "H100", minor=1),
    Gpu(WHOLE, 0, "MI210", vendor="amd", minor=1, names=("renderD128",)),
    Gpu(
        DIVIDED,
        1,
        "MI300X",
        vendor="amd",
        minor=2,
        mig=True,
        instances=(
            GpuInstance(0, "cpx", ("renderD129",)),
            GpuInstance(1, "cpx", ("renderD130", "amdgpu_xcp_0")),
        ),
    ),
    Gpu(ARC, 0, "Arc", vendor="intel", minor=3),
)


@pytest.mark.parametrize(
    ("resource", "text", "key"),
    [
        ("amd.com/gpu", "0000:19:00.0", DeviceKey(WHOLE)),
        ("amd.com/gpu", "0000:0A:00.0", DeviceKey(DIVIDED, 0)),
        ("amd.com/cpx_nps1", "amdgpu_xcp_0", DeviceKey(DIVIDED, 1)),
        ("amd.com/cpx_nps1", "AMDGPU_XCP_0", DeviceKey(DIVIDED, 1)),
        ("amd.com/cpx_nps1", "amdgpu_xcp_7", None),
        ("amd.com/gpu", "0000:20:00.0", None),
        ("amd.com/gpu", "1", None),
        ("gpu.intel.com/xe", "card3-0", DeviceKey(ARC)),
        ("gpu.intel.com/i915", "card3-4", DeviceKey(ARC)),
        ("gpu.intel.com/xe", "card1-0", None),
        ("gpu.intel.com/xe", "card3", None),
        ("gpu.intel.com/monitoring", "all", None),
        ("nvidia.com/gpu", "0000:19:00.0", None),
        ("nvidia.com/gpu", "nvidia1", DeviceKey(NVIDIA)),
        ("nvidia.com/gpu", "0", DeviceKey(NVIDIA)),
    ],
)
def test_an_id_means_the_device_of_its_vendor(resource: str, text: str, key: DeviceKey | None) -> None:
    """Card 1, minor 1 and index 0 are there for several vendors: each id is taken in its own vendor's words."""
    assert resolve(device_id(resource, text), DeviceIndex.of(GPUS)) == key


@pytest.mark.parametrize(
    ("driver", "device", "key"),
    [
        ("gpu.amd.com", "gpu-2-130", DeviceKey(DIVIDED, 1)),
        ("gpu.amd.com", "gpu-2-129", DeviceKey(DIVIDED, 0)),
        ("gpu.amd.com", "gpu-1-128", DeviceKey(WHOLE)),
        ("gpu.amd.com", "gpu-9-140", None),
        ("gpu.intel.com", "0000-03-00-0-0x56a0", DeviceKey(ARC)),
        ("gpu.intel.com", "0000-04-00-0-0x56a0", None),
        ("gpu.nvidia.com", "0000-03-00-0-0x56a0", None),
    ],
)
def test_a_claimed_device_is_found_by_its_name(driver: str, device: str, key: DeviceKey | None) -> None:
    """AMD's DRA driver names the render node, Intel's the PCI address."""
    assert resolve_claimed(driver, device, None, DeviceIndex.of(GPUS)) == key


@pytest.mark.parametrize(
    ("driver", "device", "key"),
    [
        ("gpu.amd.com", "gpu-2-130", DeviceKey(DIVIDED, 1)),
        ("gpu.amd.com", "gpu-1-128", DeviceKey(WHOLE)),
        ("gpu.intel.com", "0000-03-00-0-0x56a0", DeviceKey(ARC)),
    ],
)
def test_a_claims_limit_counts_on_the_same_device(driver: str, device: str, key: DeviceKey) -> None:
    """The resolver of limits finds it by the same name; where the vendor's devices are not known the name stays."""
    where = where_of(ClaimedDevice("gpu", driver, "pool", device))
    mine = [leaf for leaf in leaf_devices(GPUS) if leaf.vendor == driver.split(".")[1]]
    assert locate(where, mine).key == key
    assert locate(where, ()).name == f"pool/{device}"
    with pytest.raises(DeclarationError, match=f"pool/{device}"):
        locate(where, leaf_devices(GPUS[:1]))


def view(*ids: str, resource: str = "gpu.intel.com/xe", held: str = "") -> AllocationsView:
    """The kubelet offers these, and handed one of them out."""
    holdings = (Holding("ns", "pod", "main", resource, (held,)),) if held else ()
    return AllocationsView(holdings=holdings, allocatable={resource: ids}, known=True, live=True)


def test_shares_of_an_intel_gpu() -> None:
    """Several shares are replicas; one share a GPU is how the plugin names a GPU that is not shared."""
    assert sharing(view("card3-0", "card3-1", held="card3-1"), GPUS, {})[DeviceKey(ARC)] == (Sharing.TIME_SLICING, 2)
    assert sharing(view("card3-0", held="card3-0"), GPUS, {})[DeviceKey(ARC)] == (Sharing.EXCLUSIVE, 1)


def test_nvidias_label_says_nothing_of_another_vendors_gpu() -> None:
    """A node may have both: that NVIDIA's plugin shares by MPS makes no share of an Intel GPU a client of MPS."""
    offered = {
        "gpu.intel.com/xe": ("card3-0", "card3-1"),
        "nvidia.com/gpu": (f"{NVIDIA}::0", f"{NVIDIA}::1"),
    }
    both = AllocationsView(allocatable=offered, known=True, live=True)
    for labels in ({"nvidia.com/gpu.sharing-strategy": "mps"}, {"nvidia.com/mps.capable": "true"}):
        assert sharing(both, GPUS, labels) == {
            DeviceKey(ARC): (Sharing.TIME_SLICING, 2),
            DeviceKey(NVIDIA): (Sharing.MPS, 2),
        }


def test_a_partition_is_handed_out_like_an_instance() -> None:
    """A partition is a device: it is shared as MIG instances are, and held by the pod that got it."""
    found = view("0000:0a:00.0", "amdgpu_xcp_0", resource="amd.com/cpx_nps1", held="amdgpu_xcp_0")
    assert sharing(found, GPUS, {}) == {
        DeviceKey(DIVIDED, 0): (Sharing.MIG, 1),
        DeviceKey(DIVIDED, 1): (Sharing.MIG, 1),
    }
    (held,) = allocations(found, GPUS)
    assert (held.device, held.resource) == (DeviceKey(DIVIDED, 1), "amd.com/cpx_nps1")
