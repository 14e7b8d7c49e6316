"""Whose numbers a library prints: no container is named before they are proven to be the host's."""

import errno
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from exporter.devices.errors import NodesUnseenError
from exporter.devices.open_nodes import SECONDS, OpenNodes
from libraries.fake import FakeDevice, FakeProcess, GiB
from libraries.fixtures import Install, Open
from libraries.proc import NULL, VOLUME, ZERO, Proc

DEVICE = FakeDevice(0, "GPU-1", processes=(FakeProcess(4001, GiB), FakeProcess(4002, GiB)))


@pytest.fixture
def host(tmp_path: Path) -> Proc:
    """A host with one device node of the vendor's."""
    host = Proc.made(tmp_path / "host")
    host.node("fake0")
    return host


@pytest.mark.parametrize(
    ("opened", "proven"),
    [
        ({4001: (NULL,), 4002: (NULL, ZERO)}, True),
        ({4001: (NULL,)}, True),  # the other one has just ended
        ({4001: (NULL,), 4002: (ZERO,)}, False),  # a process that has nothing to do with the device
        ({}, False),  # numbers of another namespace, which no process has here
        ({4001: (), 4002: ()}, False),
        ({4001: None, 4002: None}, False),  # may not be looked at
        ({4001: (NULL,), 4002: None}, True),
    ],
)
async def test_numbers_are_proven_by_open_nodes(
    opened: dict[int, tuple[Path, ...] | None], proven: bool, host: Proc, install: Install, sources: Open
) -> None:
    """Each process that lives and may be looked at has the device open, and there is one: then the numbers are ours."""
    for pid, paths in opened.items():
        host.process(pid, "0::/", *(paths or ()), hidden=paths is None)
    library = install("hgml")
    library.write(DEVICE)

    (sample,) = (await sources(library, proc=host.proc, dev=host.dev).sample()).samples

    assert sample.pids_proven is proven


async def test_a_proof_holds_while_the_library_is_loaded(host: Proc, install: Install, sources: Open) -> None:
    """The kind of numbers is the library's: a listed process that has since died does not undo the proof."""
    host.process(4001, "0::/", NULL)
    library = install("mxsml")
    library.write(DEVICE)
    source = sources(library, proc=host.proc, dev=host.dev)
    assert (await source.sample()).samples[0].pids_proven
    library.write(replace(DEVICE, processes=(FakeProcess(77, GiB),)))

    assert (await source.sample()).samples[0].pids_proven


async def test_a_list_without_anybody_needs_no_proof(install: Install, sources: Open) -> None:
    """An empty list means the same in every namespace."""
    library = install("ixml")
    library.write(replace(DEVICE, processes=()))

    (sample,) = (await sources(library).sample()).samples

    assert (sample.processes, sample.pids_proven) == ((), True)


async def test_one_number_of_kunlunxin_without_the_hosts_needs_proof(install: Install, sources: Open) -> None:
    """The library says which numbers are the host's; where it does not for one of them, none is believed unproven."""
    library = install("xpuml")
    library.write(replace(DEVICE, processes=(FakeProcess(7, GiB, host_pid=4001), FakeProcess(8, GiB))))

    assert not (await sources(library).sample()).samples[0].pids_proven


async def test_who_has_a_moore_threads_open_is_on_it(host: Proc, install: Install, sources: Open) -> None:
    """Row 58: processes from open nodes, each with unknown bytes; only the node of this device counts."""
    host.node("dri/renderD128", ZERO)
    host.process(4001, "0::/", ZERO)
    host.process(4002, "0::/", NULL)  # another device
    library = install("mtml")
    library.write(FakeDevice(0, "mtt-1", node="/dev/dri/renderD128"))

    (sample,) = (await sources(library, proc=host.proc, dev=host.dev).sample()).samples

    assert sample.processes is not None
    assert [(each.pid, each.memory) for each in sample.processes] == [(4001, None)]
    assert sample.pids_proven


async def test_who_is_on_a_moore_threads_is_unknown_while_one_hides(
    host: Proc, install: Install, sources: Open
) -> None:
    """One process that may not be looked at may be on the device: no process is listed then, and a fault names it."""
    host.node("dri/renderD128", ZERO)
    host.process(4001, "0::/", ZERO)
    host.process(4002, "0::/", hidden=True)
    library = install("mtml")
    library.write(FakeDevice(0, "mtt-1", node="/dev/dri/renderD128"))

    (sample,) = (await sources(library, proc=host.proc, dev=host.dev).sample()).samples

    assert sample.processes is None
    ((reason, message, incomplete),) = [(fault.reason, fault.message, fault.incomplete) for fault in sample.faults]
    assert (reason, incomplete) == ("nodes_unseen", False)
    assert "/proc/4002/fd" in message


@pytest.mark.parametrize(("node", "told"), [("", ()), ("/dev/dri/renderD129", ("nodes_unseen",))])
async def test_a_moore_threads_whose_node_is_not_here(
    node: str, told: tuple[str, ...], host: Proc, install: Install, sources: Open
) -> None:
    """A library that names no node never tells who is on the device; one whose node is not mounted here could."""
    host.process(4001, "0::/", NULL)
    library = install("mtml")
    library.write(FakeDevice(0, "mtt-1", node=node))

    (sample,) = (await sources(library, proc=host.proc, dev=host.dev).sample()).samples

    assert sample.processes is None
    assert tuple(fault.reason for fault in sample.faults) == told


def test_a_file_on_a_volume_below_dev_is_not_asked_what_it_is(host: Proc) -> None:
    """A volume may be mounted there, on a file system that never answers: what is on it is no device's node."""
    host.process(4001, "0::/", NULL, mount=VOLUME)
    host.process(4002, "0::/", NULL)
    nodes = OpenNodes(host.proc, host.dev, ("fake*",))
    assert nodes.holders(nodes.numbers()) == {4002}
    assert not nodes.held_by_all([4001])


def test_nodes_of_a_driver_that_came_later_are_seen(host: Proc) -> None:
    """A container's /dev is from when it began; that of the host's first process has what there is now."""
    nodes = OpenNodes(host.proc, host.dev, ("later*",))
    assert nodes.numbers() == frozenset()
    later = host.proc / "1/root/dev/later0"
    later.parent.mkdir(parents=True)
    later.symlink_to(ZERO)
    assert nodes.numbers() == {ZERO.stat().st_rdev}
    assert nodes.below(PurePosixPath("/dev/later0")) == later


def test_a_node_is_known_by_its_number(host: Proc) -> None:
    """A process with a file that is named like a device does not hold it; one with another name of it in /dev does."""
    host.process(4001, "0::/", Path("/dev/full"))
    nodes = OpenNodes(host.proc, host.dev, ("fake*",))
    assert not nodes.held_by_all([4001])
    assert OpenNodes(host.proc, Path("/dev"), ("full",)).held_by_all([4001])
    assert OpenNodes(host.proc, Path("/dev"), ("nothing*",)).numbers() == frozenset()
    assert not OpenNodes(host.proc, Path("/dev"), ("nothing*",)).held_by_all([4001])


def test_fdinfo_is_bytes(host: Proc) -> None:
    """What a driver prints of names is any bytes (tun's does); all else is as it was."""
    host.process(4001, "0::/", NULL)
    with (host.proc / "4001/fdinfo/1").open("ab") as file:
        file.write(b"iff:\t\xff\xfe\n")
    nodes = OpenNodes(host.proc, host.dev, ("fake*",))
    assert nodes.holders(nodes.numbers()) == {4001}


def test_a_path_that_is_too_long_hides_nobody(host: Proc, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file's name below more than 4096 bytes of folders cannot be read: its process is looked at all the same."""
    host.process(4001, "0::/", ZERO)
    host.process(4002, "0::/", NULL)
    before = os.readlink

    def refused(path: str) -> str:
        if path.endswith(("/4001/fd/1", "/4002/fd/1")):
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG), path)
        return before(path)

    monkeypatch.setattr(os, "readlink", refused)
    nodes = OpenNodes(host.proc, host.dev, ("fake*",))
    assert nodes.holders(nodes.numbers()) == {4002}


def test_a_look_ends(host: Proc) -> None:
    """A process that makes a look last too long may hold the device: no holder is named, and no number is refuted."""
    host.process(4001, "0::/", *[ZERO] * 3)
    host.process(4002, "0::/", NULL)
    now = 0.0

    def beat(call: str) -> None:
        nonlocal now
        now += SECONDS if "/4001/fd/" in call else 0.0

    nodes = OpenNodes(host.proc, host.dev, ("fake*",), beat, lambda: now)
    with pytest.raises(NodesUnseenError):
        nodes.holders(nodes.numbers())
    assert nodes.held_by_all([4002, 4001])
    assert not nodes.held_by_all([4001])
