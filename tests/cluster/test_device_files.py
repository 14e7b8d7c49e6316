"""What plays the kernel module below NVIDIA's runtime. In: specs. Out: the fake driver's state, or nothing."""

from __future__ import annotations

from cluster.device_files import CONTROL, STATE, joined


def added(*devices: str, mounts: tuple[str, ...] = ("/proc",)) -> list[dict[str, object]]:
    """The mounts that a container with these devices had not before."""
    linux = {"devices": [{"path": one} for one in devices]} if devices else {}
    before = [{"destination": one} for one in mounts]
    after = joined({"linux": linux, "mounts": before}, "/state")["mounts"]
    assert after[: len(before)] == before
    return list(after[len(before) :])


def test_device_files_lead_to_the_driver() -> None:
    """A container with the control device reaches the state, once; one without a device, or with another, does not."""
    (mount,) = added("/dev/nvidia0", CONTROL)
    assert (mount["destination"], mount["source"], mount["options"]) == (STATE, "/state", ["rbind", "rw"])
    assert added(CONTROL, mounts=("/proc", STATE)) == [], "a device plugin brought it"
    assert added() == added("/dev/fuse") == []
