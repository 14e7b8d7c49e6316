"""The holders of DRM clients, each client counted once: rows 21 to 26 and 33 of the table of descriptors."""

from exporter.devices.kernel.clients import RENDER, Descriptor, Holder, holdings
from exporter.devices.kernel.fdinfo import Client, parse
from exporter.model import ContainerId, DeviceKey, GpuUuid, Owner, PodUid

MIB = 2**20
A = Owner(((PodUid("pod-a"), ContainerId("a" * 64)),))
B = Owner(((PodUid("pod-b"), ContainerId("b" * 64)),))
GPU = DeviceKey(GpuUuid("0000:03:00.0"))
OTHER = DeviceKey(GpuUuid("0000:04:00.0"))


def client(number: int | str = 99, mib: int = 512, *, pdev: str = "0000:03:00.0", driver: str = "amdgpu") -> Client:
    """Make a client that holds so many MiB, nothing of it shared."""
    found = parse(
        f"drm-driver: {driver}\ndrm-client-id: {number}\n"
        + (f"drm-pdev: {pdev}\n" if pdev else "")
        + f"drm-resident-vram: {mib * 1024} KiB\ndrm-shared-vram: 0\n"
    )
    assert found is not None
    return found


def by_pdev(descriptor: Descriptor) -> DeviceKey | None:
    """Name the device as where no node can be looked at."""
    return {"0000:03:00.0": GPU, "0000:04:00.0": OTHER}.get(descriptor.client.pdev) if descriptor.client else GPU


def test_several_descriptors_of_one_file() -> None:
    """Row 21: three descriptors of client 99 hold its bytes once (a naive sum gives 1.5 GiB)."""
    one = Holder(4242, 100, A)
    held = holdings([Descriptor(one, None, client()) for _ in range(3)], by_pdev)
    assert held[GPU][4242].memory == held[GPU][4242].memory_sure == 512 * MIB


def test_a_fork_holds_what_its_parent_counts() -> None:
    """Row 22: parent and child of one container are two processes with one client."""
    family = (Holder(4242, 100, A), Holder(4243, 200, A))
    held = holdings([Descriptor(one, None, client()) for one in family], by_pdev)[GPU]
    assert {pid: found.memory for pid, found in held.items()} == {4242: 512 * MIB, 4243: 0}
    assert held[4242].memory_sure == 512 * MIB


def test_a_client_in_two_containers_is_surely_nobodys() -> None:
    """Row 23: it counts once, for the holder that started first, and none of it may be held against a container."""
    both = (Holder(5000, 100, A), Holder(400, 200, B))
    held = holdings([Descriptor(one, None, client()) for one in both], by_pdev)[GPU]
    assert {pid: (found.memory, found.memory_sure) for pid, found in held.items()} == {
        5000: (512 * MIB, 0),
        400: (0, 0),
    }


def test_holders_whose_container_is_unknown_dispute_it() -> None:
    """A second holder of which nothing could be read may belong to any container."""
    both = (Holder(1, 100, None), Holder(2, 200, None))
    held = holdings([Descriptor(one, None, client()) for one in both], by_pdev)[GPU]
    assert (held[1].memory, held[1].memory_sure) == (512 * MIB, 0)


def test_one_number_on_two_devices() -> None:
    """Row 24: older i915 counts ids for each device."""
    one = Holder(7, 1, A)
    twins = [Descriptor(one, None, client(7)), Descriptor(one, None, client(7, 256, pdev="0000:04:00.0"))]
    held = holdings(twins, by_pdev)
    assert (held[GPU][7].memory, held[OTHER][7].memory) == (512 * MIB, 256 * MIB)


def test_one_number_of_two_drivers_without_an_address() -> None:
    """Row 25: panthor's client 10 and v3d's client 10 are told apart by their nodes."""
    one = Holder(7, 1, A)
    pair = [
        Descriptor(one, (RENDER, 128), client(10, driver="panthor", pdev="")),
        Descriptor(one, (RENDER, 129), client(10, 1, driver="v3d", pdev="")),
    ]
    held = holdings(pair, lambda d: {128: GPU, 129: OTHER}[d.node[1]] if d.node else None)
    assert (held[GPU][7].memory, held[OTHER][7].memory) == (512 * MIB, MIB)


def test_partitions_are_told_by_their_render_nodes() -> None:
    """Row 26: both descriptors print the address of the one GPU, and are of two partitions."""
    one = Holder(7, 1, A)
    first, second = DeviceKey(GPU.uuid, 1), DeviceKey(GPU.uuid, 2)
    pair = [Descriptor(one, (RENDER, 129), client(1)), Descriptor(one, (RENDER, 130), client(2, 256))]
    held = holdings(pair, lambda d: {129: first, 130: second}[d.node[1]] if d.node else None)
    assert (held[first][7].memory, held[second][7].memory) == (512 * MIB, 256 * MIB)


def test_a_client_that_cannot_be_told_from_others_makes_its_holder_unknown() -> None:
    """Row 17: it is not added to anything, and the holder is there, with a problem."""
    held = holdings([Descriptor(Holder(7, 1, A), None, client("what"))], by_pdev)[GPU][7]
    assert (held.memory, held.memory_sure, held.clients, held.problems) == (None, None, {}, frozenset({"client_id"}))


def test_a_descriptor_that_tells_nothing_makes_its_holder_unknown() -> None:
    """Row 11: the process holds the device, and how much is unknown, whatever its other descriptors say."""
    one = Holder(7, 1, A)
    held = holdings([Descriptor(one, (RENDER, 128), None), Descriptor(one, None, client())], by_pdev)[GPU][7]
    assert (held.memory, held.blind) == (None, True)


def test_a_reading_that_grew_meanwhile() -> None:
    """Of two readings of one client within a round the larger counts."""
    one = Holder(7, 1, A)
    held = holdings([Descriptor(one, None, client(1, size)) for size in (5, 9, 6)], by_pdev)
    assert held[GPU][7].memory == 9 * MIB
