"""Which sources a node has. This machine has no NVIDIA driver and no vendor's library; its other GPUs are files."""

import asyncio
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.devices import NAMES, DeviceError, vendor_libs
from exporter.devices.finding import Finder, has_nvidia
from exporter.devices.kernel import Roots
from sources.kernel import Node


@pytest.fixture
def node(tmp_path: Path) -> Node:
    """An empty node."""
    return Node(tmp_path / "node")


def finder(node: Node) -> Finder:
    """Look for sources on this node."""
    return Finder(node.roots, node.root, clock=time.time, monotonic=time.monotonic)


async def test_the_names_are_all_sources() -> None:
    """What a config may name is what can be opened."""
    assert ("nvml", "kfd", "drm", *vendor_libs.LIBRARIES) == NAMES


async def test_auto_takes_what_is_there(node: Node) -> None:
    """AMD's GPUs, by their descriptors where those may be looked at."""
    node.card("0000:63:00.0")
    source = await finder(node).open(None)
    assert source.name == "drm"
    assert list((await source.sample()).present) == ["0000:63:00.0"]
    await source.close()


async def test_without_the_right_to_look_amd_is_told_by_kfd(node: Node, as_nobody: Callable[[], None]) -> None:
    """No round has a fault for a right that ROCm does not need. Intel's GPUs have no other way, so there it is one."""
    for name in ("fd", "fdinfo"):
        (node.root / f"proc/1/{name}").chmod(0)
    node.card("0000:63:00.0")
    node.rocm_node(1, 41657, location_id=0x6300, domain=0, drm_render_minor=128)
    intel = Node(node.root / "intel")
    (intel.root / "proc/1/fd").chmod(0)
    intel.card("0000:64:00.0", driver="xe")
    as_nobody()
    source = await finder(node).open(None)
    assert (source.name, (await source.sample()).faults) == ("kfd", ())
    await source.close()
    source = await finder(intel).open(None)
    assert source.name == "drm"
    assert [fault.reason for fault in (await source.sample()).faults] == ["fdinfo_denied"]
    await source.close()


async def test_nothing_found_says_what_to_do(node: Node) -> None:
    """No simulation takes its place: the error says that no GPU was found, and how to fix the NVIDIA driver."""
    with pytest.raises(DeviceError, match=r"no GPU was found: the NVIDIA driver cannot be used: .*; fix: "):
        await finder(node).open(None)


@pytest.mark.parametrize("wanted", [None, {"drm"}, {"kfd"}])
async def test_a_hang_at_the_start_is_no_absence(node: Node, wanted: set[str] | None) -> None:
    """
    An amdgpu that is being reset blocks its readers: the source opens, reports that it hangs, and then has its GPUs.

    Otherwise the GPUs would be missing until a restart, without a fault; or the daemon would end with a wrong `fix:`.
    """
    node.card("0000:63:00.0")
    figure = node.root / "sys/devices/pci0000:00/0000:63:00.0/gpu_busy_percent"
    os.mkfifo(figure)
    source = await replace(finder(node), deadline=0.2).open(wanted)
    assert [fault.reason for fault in (await source.sample()).faults] == ["driver_hung"]
    descriptor = os.open(figure, os.O_RDWR)  # waits for no reader
    figure.unlink()
    os.close(descriptor)  # and lets one go on
    async with asyncio.timeout(30):
        while not (sample := await source.sample()).samples:
            assert [fault.reason for fault in sample.faults] == ["driver_hung"]
    assert list(sample.present) == ["0000:63:00.0"]
    await source.close()


async def test_integrated_graphics_come_by_name_alone(node: Node) -> None:
    """The graphics of a server's or a laptop's screen are no GPU of a cluster, unless the source is named."""
    node.card("0000:00:02.0", driver="i915")
    node.card("0000:c5:00.0", number=1, minor=129)
    node.rocm_node(1, 77, location_id=0xC500, domain=0, drm_render_minor=129, cpu_cores_count=16)
    with pytest.raises(DeviceError):
        await finder(node).open(None)
    source = await finder(node).open({"drm"})
    assert sorted((await source.sample()).present) == ["0000:00:02.0", "0000:c5:00.0"]
    await source.close()


@pytest.mark.parametrize("kind", ["0x030000", "0x030200"])
async def test_a_broken_nvidia_driver_is_never_hidden_by_another_gpu(node: Node, kind: str) -> None:
    """The bus has a GPU of NVIDIA's: `auto` fails with the driver's remedy, though an AMD GPU would answer."""
    node.card("0000:63:00.0")
    node.write("sys/bus/pci/devices/0000:01:00.0/vendor", "0x10de\n")
    node.write("sys/bus/pci/devices/0000:01:00.0/class", f"{kind}\n")
    with pytest.raises(DeviceError, match="the NVIDIA driver cannot be used"):
        await finder(node).open(None)


def test_what_is_a_gpu_of_nvidias(node: Node) -> None:
    """NVIDIA's switches and sound cards are no GPUs, and another vendor's GPU is not NVIDIA's."""
    for place, (vendor, kind) in enumerate([("0x10de", "0x068000"), ("0x10de", "0x040300"), ("0x1002", "0x038000")]):
        node.write(f"sys/bus/pci/devices/0000:0{place}:00.0/vendor", f"{vendor}\n")
        node.write(f"sys/bus/pci/devices/0000:0{place}:00.0/class", f"{kind}\n")
    (node.root / "sys/bus/pci/devices/0000:09:00.0").mkdir()
    assert not has_nvidia(node.roots.sys)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("drm", "no GPU of amdgpu, xe or i915 in "),
        ("kfd", "no GPU of amdgpu in "),
        ("nvml", "NVIDIA"),
        ("dcmi", "libdcmi"),
    ],
)
async def test_what_was_named_must_be_there(node: Node, name: str, remedy: str) -> None:
    """Else it fails, with what is missing."""
    node.card("0000:03:00.0", driver="ast")
    with pytest.raises(DeviceError, match=remedy):
        await finder(node).open({name})


async def test_what_the_kernel_counts_comes_with_any_source(node: Node) -> None:
    """Where the kernel has dmem, its counts come with the source; on other kernels there are none."""
    node.card("0000:63:00.0")
    plain = await finder(node).open(None)
    region, pod = "drm/0000:63:00.0/vram", "pod11111111-1111-1111-1111-111111111111"
    node.cgroup("", {"capacity": f"{region} 100\n", "current": f"{region} 9\n"})
    node.cgroup(f"kubepods/{pod}/{'a' * 64}", {"current": f"{region} 7\n"})
    counting = await finder(node).open(None)
    assert [one.cgroups for one in (await plain.sample()).samples] == [()]
    assert [[each.used for each in one.cgroups] for one in (await counting.sample()).samples] == [[7]]
    assert counting.name == plain.name == "drm"
    await plain.close()
    await counting.close()


async def test_drm_has_what_kfd_has(node: Node) -> None:
    """Both named are one source: each GPU is reported once."""
    node.card("0000:63:00.0")
    source = await finder(node).open({"kfd", "drm"})
    assert source.name == "drm"
    await source.close()


def test_where_the_hosts_files_are(tmp_path: Path, node: Node) -> None:
    """Below the mounted root of the host; our own where that is not mounted, and the chart mounts the cgroups alone."""
    assert Roots.below(node.root, node.root / "proc") == node.roots
    cgroup = tmp_path / "host/sys/fs/cgroup"
    cgroup.mkdir(parents=True)
    assert Roots.below(tmp_path / "host", Path("/proc")) == Roots(cgroup=cgroup)
    assert Roots.below(tmp_path / "nothing", Path("/proc")) == Roots()
