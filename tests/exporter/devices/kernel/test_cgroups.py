"""The kernel's own counts by cgroup: which folders are looked into, in which hierarchy, and what counts as memory."""

import pytest

from exporter.devices.kernel.cgroups import read_dmem
from exporter.devices.kernel.dmem import own, parse
from exporter.devices.kernel.tree import Tree
from sources.kernel import Node

BUS = "0000:03:00.0"
POD = "pod11111111-1111-1111-1111-111111111111"
ID, OTHER = "a" * 64, "b" * 64


def files(used: int) -> dict[str, str]:
    """Write what a leaf holds."""
    return {"current": f"drm/{BUS}/vram0 {used}\n"}


def read(node: Node) -> dict[str, int]:
    """Name what each container holds, by the end of its owner."""
    beats: list[str] = []
    found = read_dmem(Tree(node.roots.cgroup, beats.append))
    assert found is not None and beats
    return {f"{group.owner.pairs[-1]}": group.used[BUS] for group in found.groups}


def test_containers_are_found_wherever_their_pod_is(node: Node) -> None:
    """By cgroupfs and by systemd; a pod's own folder, its neighbours and what is no pod's are not containers."""
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 100\n", **files(60)})
    node.cgroup("system.slice/ssh.service", files(1))
    node.cgroup(f"kubepods/{POD}", files(30))
    node.cgroup(f"kubepods/{POD}/{ID}", files(30))
    systemd = f"kubepods.slice/kubepods-{POD.replace('-', '_').replace('1', '2')}.slice"
    node.cgroup(f"{systemd}/cri-containerd-{OTHER}.scope", files(20))
    assert sorted(read(node).values()) == [20, 30]


def test_what_a_container_makes_below_itself_is_not_looked_at(node: Node) -> None:
    """Its own folders are in its own count, whatever they are called and however many."""
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 100\n"})
    node.cgroup(f"kubepods/{POD}/{ID}", files(30))
    node.cgroup(f"kubepods/{POD}/{ID}/kubepods/{POD.replace('1', '3')}/{OTHER}", files(10))
    assert list(read(node).values()) == [30]


def test_a_node_in_a_container_has_its_own_pods(node: Node) -> None:
    """kind: below the container that is the node, its kubelet's pods are found."""
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 100\n"})
    node.cgroup(f"docker/{OTHER}", files(50))
    node.cgroup(f"docker/{OTHER}/kubelet", files(40))
    node.cgroup(f"docker/{OTHER}/kubelet/kubepods/{POD}/{ID}", files(7))
    assert sorted(read(node).values()) == [7, 50], "what stands between is the node's own, and counted there"


@pytest.mark.parametrize("root", ["", "unified/", "dmem/"])
def test_the_hierarchy_that_has_the_controller(node: Node, root: str) -> None:
    """cgroup v2, a hybrid's, or v1's own."""
    node.cgroup(root, {"capacity": f"drm/{BUS}/vram0 100\n", **files(60)})
    node.cgroup(f"{root}kubepods/{POD}/{ID}", files(30))
    assert list(read(node).values()) == [30]


def test_a_kernel_without_the_controller(node: Node) -> None:
    """Nothing is known, and nobody is walked through."""
    node.cgroup(f"kubepods/{POD}/{ID}", files(30))
    beats: list[str] = []
    assert read_dmem(Tree(node.roots.cgroup, beats.append)) is None
    assert len(beats) == 3


def test_the_text() -> None:
    """Names of any driver with a PCI address; `max` is no number; other lines are nobody's."""
    text = f"drm/{BUS}/vram0 12550144\ndrm/{BUS}/stolen max\nnvidia/0000:0A:00.0/vidmem 7\ndrm/card0/vram 5\nvram0\n\n"
    assert parse(text) == {(BUS, "vram0"): 12550144, (BUS, "stolen"): None, ("0000:0a:00.0", "vidmem"): 7}
    assert own(text) == {BUS: 12550144, "0000:0a:00.0": 7}
    assert own(f"drm/{BUS}/vram0 5\ndrm/{BUS}/vram1 max\n") == {}, "one tile without a limit is no limit"
    assert own(None) == own("") == {}
