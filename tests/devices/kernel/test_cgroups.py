"""The kernel's own counts by cgroup: which folders are looked into, in which hierarchy, and what counts as memory."""

import pytest

from exporter.base.cgroup_owner import USUAL, Origin, PodCgroups
from exporter.devices.kernel.cgroups import counted_here, read_dmem, read_groups
from exporter.devices.kernel.dmem import address, own, parse
from exporter.devices.kernel.tree import Tree
from sources.kernel import Node

BUS = "0000:03:00.0"
POD = "pod11111111-1111-1111-1111-111111111111"
ID, OTHER = "a" * 64, "b" * 64


def files(used: int) -> dict[str, str]:
    """Return the files of a cgroup that has no children and holds `used` bytes."""
    return {"current": f"drm/{BUS}/vram0 {used}\n"}


def read(node: Node, pods: PodCgroups = USUAL) -> dict[str, int]:
    """Name what each container holds, by the end of its owner."""
    beats: list[str] = []
    tree = Tree(node.roots.cgroup, beats.append)
    found = read_dmem(tree)
    assert found is not None and beats
    return {f"{group.owner.pairs[-1]}": group.used[BUS] for group in read_groups(tree, found, pods)}


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
    kind = PodCgroups((f"/docker/{OTHER}/kubelet/kubepods",), Origin.OWN_POD)
    assert sorted(read(node, kind).values()) == [7], "what stands between is no pod's"
    assert read(node) == {}, "another kubelet's"


def test_who_makes_folders_elsewhere_is_neither_believed_nor_walked_through(node: Node) -> None:
    """Folders of a user of the node that bear a pod's name count for no container, and cost no time."""
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 100\n"})
    node.cgroup(f"user.slice/user@1000.service/kubepods/{POD}/{ID}", files(90))
    node.cgroup(f"kubepods/{POD}/{OTHER}", files(7))
    beats: list[str] = []
    tree = Tree(node.roots.cgroup, beats.append)
    found = read_dmem(tree)
    assert found is not None
    assert [group.owner.outermost[1] for group in read_groups(tree, found)] == [OTHER]
    assert not any("user@1000" in beat for beat in beats)


@pytest.mark.parametrize("root", ["", "unified/", "dmem/"])
def test_the_hierarchy_that_has_the_controller(node: Node, root: str) -> None:
    """cgroup v2, a hybrid's, or v1's own."""
    node.cgroup(root, {"capacity": f"drm/{BUS}/vram0 100\n", **files(60)})
    node.cgroup(f"{root}kubepods/{POD}/{ID}", files(30))
    assert list(read(node).values()) == [30]


def test_a_kernel_without_the_controller(node: Node) -> None:
    """Nothing is known, and no cgroup is walked through."""
    node.cgroup(f"kubepods/{POD}/{ID}", files(30))
    beats: list[str] = []
    assert read_dmem(Tree(node.roots.cgroup, beats.append)) is None
    assert len(beats) == 3


def test_a_controller_without_devices(node: Node) -> None:
    """The kernel has dmem, and no driver registered a device: no round walks through the cgroups."""
    node.cgroup("", {"capacity": "", "current": ""})
    node.cgroup(f"kubepods/{POD}/{ID}", {"current": ""})
    beats: list[str] = []
    tree = Tree(node.roots.cgroup, beats.append)
    found = read_dmem(tree)
    assert found is not None and read_groups(tree, found) == ()
    assert len(beats) == 2


def test_what_a_container_sees_of_its_own(node: Node) -> None:
    """In a cgroup namespace of its own, the container sees which devices are counted, and not what any cgroup holds."""
    node.cgroup("", {"current": "nvidia/00000000:02:00.0/vidmem 0\n", "max": "nvidia/00000000:02:00.0/vidmem max\n"})
    tree = Tree(node.roots.cgroup, lambda _: None)
    assert read_dmem(tree) is None
    assert counted_here(tree) == {"0000:02:00.0"}


def test_crun_has_the_limit_one_folder_deeper(node: Node) -> None:
    """Where crun puts the processes the limit is set; a folder of that name below another runtime's is the tenant's."""
    limit = {"max": f"drm/{BUS}/vram0 20\n"}
    node.cgroup("", {"capacity": f"drm/{BUS}/vram0 100\n"})
    for scope in (f"crio-{ID}.scope", f"cri-containerd-{OTHER}.scope"):
        folder = f"kubepods.slice/kubepods-{POD.replace('-', '_')}.slice/{scope}"
        node.cgroup(folder, {**files(7), "max": f"drm/{BUS}/vram0 max\n"})
        node.cgroup(f"{folder}/container", {**files(7), **limit})
    tree = Tree(node.roots.cgroup, lambda _: None)
    found = read_dmem(tree)
    assert found is not None
    limits = {group.owner.pairs[-1][1]: dict(group.limit) for group in read_groups(tree, found)}
    assert limits == {ID: {BUS: 20}, OTHER: {}}


def test_the_text() -> None:
    """Names of any driver with a PCI address are read; `max` is no number; other lines belong to no device."""
    text = f"drm/{BUS}/vram0 12550144\ndrm/{BUS}/stolen max\nnvidia/0000:0A:00.0/vidmem 7\ndrm/card0/vram 5\nvram0\n\n"
    assert parse(text) == {(BUS, "vram0"): 12550144, (BUS, "stolen"): None, ("0000:0a:00.0", "vidmem"): 7}
    assert own(text) == {BUS: 12550144, "0000:0a:00.0": 7}
    assert own(f"drm/{BUS}/vram0 5\ndrm/{BUS}/vram1 max\n") == {}, "one tile without a limit is no limit"
    assert own(None) == own("") == {}


def test_nvidias_text() -> None:
    """
    The driver writes the domain in eight digits, and keeps a second region of the GPU beside its memory.

    The first line is of driver 615.71.09 on Linux 7.0, from NVIDIA's guide to MPS and dmem (ai-dynamo/dynamo,
    "Per-GPU Compute and Memory Limits with MPS"). The next two lines are of a live GeForce of 16 GB, as a program's
    own tests have them (`parse_dmem_capacity`). Slurm's gres_shard.c expects the form without the function.
    """
    assert own("nvidia/00000000:02:00.0/vidmem 102641958912\n") == {"0000:02:00.0": 102641958912}
    both = "nvidia/00000000:01:00.0/gpu0 1073741824\nnvidia/00000000:01:00.0/vidmem 17094934528\n"
    assert own(both) == {"0000:01:00.0": 17094934528}
    assert own("nvidia/0000:01:00/vidmem 5\n") == {"0000:01:00.0": 5}


@pytest.mark.parametrize(
    ("text", "pci"),
    [
        ("0000:02:00.0", "0000:02:00.0"),
        ("00000000:3B:00.0", "0000:3b:00.0"),
        ("00010000:0A:1f.7", "10000:0a:1f.7"),
        ("0000:02:00", "0000:02:00.0"),
        ("", ""),
        ("0000:02:00.8", ""),
        ("GPU-1", ""),
        ("0000:02:00.0\n", ""),
    ],
)
def test_an_address_has_one_spelling(text: str, pci: str) -> None:
    """As the kernel writes it; what is no address is none."""
    assert address(text) == pci
