"""What cannot be proven is refused, and what is not known stays unknown: never guessed, never 0."""

import ctypes
import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.devices.errors import LayoutError
from exporter.devices.vendor_libs import metax
from exporter.devices.vendor_libs.layouts import (
    LARGEST_PID,
    UNKNOWN,
    Entry,
    Listed,
    balanced,
    blank,
    entries,
    listed,
    ratio,
    which,
    written,
)
from exporter.devices.vendor_libs.rows import ROWS
from exporter.model import GpuSample, Memory
from libraries.fake import FakeDevice, FakeProcess, GiB
from libraries.fixtures import Install, Open

DEVICE = FakeDevice(0, "GPU-1", processes=(FakeProcess(4001, GiB), FakeProcess(4002, 3 * GiB), FakeProcess(4003, GiB)))
U32, U64 = ctypes.c_uint32, ctypes.c_uint64


def refused(sample: GpuSample) -> list[str]:
    """Give the reasons of what makes the round incomplete."""
    return [fault.reason for fault in sample.faults if fault.incomplete]


@pytest.mark.parametrize("variant", ["ixml", "ixml-v3", "efml", "mxsml", "xpuml", "hgml"])
@pytest.mark.parametrize("entry", [8, 20, 36, 40, 48, 56])
async def test_entries_of_another_size_are_refused(variant: str, entry: int, install: Install, sources: Open) -> None:
    """A release whose entries have an unknown size hides all, rather than name half of them wrongly."""
    library = install(variant)
    library.write(DEVICE, knobs={"entry": entry})

    (sample,) = (await sources(library).sample()).samples

    assert (sample.processes, refused(sample)) == (None, ["layout_unknown"])
    assert sample.gpu.memory is not None  # which proved itself


@pytest.mark.parametrize(
    ("variant", "process"),
    [
        ("hgml", FakeProcess(4001, int(32 * GiB * 1.06))),
        ("mxsml", FakeProcess(2**31, GiB)),
        ("xpuml", FakeProcess(7, 40 * GiB, host_pid=4001)),
        ("dcmi", FakeProcess(4001, 40 * GiB)),
        ("cndev", FakeProcess(4001, 40 * GiB)),
        ("cndev", FakeProcess(2**22 + 1, GiB)),
    ],
)
async def test_what_cannot_be_is_refused(variant: str, process: FakeProcess, install: Install, sources: Open) -> None:
    """A process that would hold more than 105 % of the device, or has a number that none can have, is another field."""
    library = install(variant)
    library.write(replace(DEVICE, uuid="1-2-3-4-5", processes=(FakeProcess(4000, GiB), process)))

    (sample,) = (await sources(library).sample()).samples

    assert (sample.processes, refused(sample)) == (None, ["layout_unknown"])


@pytest.mark.parametrize("variant", ["ixml-v3", "mxsml", "xpuml", "hgml", "dcmi"])
@pytest.mark.parametrize("sentinel", [2**64 - 1, 2**32 - 1])
async def test_a_process_whose_memory_is_not_told_is_there(
    variant: str, sentinel: int, install: Install, sources: Open
) -> None:
    """All ones mean that the library does not know: the process is listed, and its bytes are unknown."""
    library = install(variant)
    library.write(replace(DEVICE, uuid="1-2-3-4-5", processes=(FakeProcess(4001, sentinel), FakeProcess(4002, GiB))))

    (sample,) = (await sources(library).sample()).samples

    assert sample.processes is not None
    assert [(each.pid, each.memory) for each in sample.processes] == [(4001, None), (4002, GiB)]


async def test_a_count_of_all_ones_is_unknown(install: Install, sources: Open) -> None:
    """Row 56: 4294967295 entries mean that the library does not know how many; that is a fact, and no fault."""
    library = install("xpuml")
    library.write(DEVICE, knobs={"count": 2**32 - 1})

    (sample,) = (await sources(library).sample()).samples

    assert (sample.processes, refused(sample)) == (None, [])


@pytest.mark.parametrize("count", [2, 4, 5000])
async def test_a_count_that_is_not_what_was_written_is_refused(count: int, install: Install, sources: Open) -> None:
    """Three entries that are called two, four or more than there was room for."""
    library = install("hgml")
    library.write(DEVICE, knobs={"count": count})

    assert refused((await sources(library).sample()).samples[0]) == ["layout_unknown"]


async def test_a_missing_symbol_takes_only_what_it_would_tell(install: Install, sources: Open) -> None:
    """A release without the process list: memory and the rest are there, and the processes are unknown."""
    library = install("hgml-bare")
    library.write(DEVICE)

    (sample,) = (await sources(library).sample()).samples

    assert sample.gpu.memory is not None
    assert sample.processes is None
    assert [(fault.reason, fault.incomplete) for fault in sample.faults] == [("unsupported", False)]


async def test_memory_that_does_not_add_up_is_refused(install: Install, sources: Open) -> None:
    """Free, used and reserved make the total, or the fields stand elsewhere: then memory is unknown."""
    library = install("xpuml")
    for wrong in (replace(DEVICE, free=GiB, used=2 * GiB), replace(DEVICE, free=30 * GiB, used=30 * GiB)):
        library.write(wrong)

        (sample,) = (await sources(library).sample()).samples

        assert sample.gpu.memory is None
        assert refused(sample) == ["layout_unknown"]


@pytest.mark.parametrize("variant", ["ixml-v3", "efml", "hgml"])
async def test_what_is_reserved_is_believed_where_the_plain_call_agrees(
    variant: str, install: Install, sources: Open
) -> None:
    """Three figures in another order have the same sum: then reserved counts as used, and nothing is swapped."""
    library = install(variant)
    swapped = replace(DEVICE, free=20 * GiB, used=11 * GiB, reserved=GiB)
    knobs = {"memory_version": 2 if variant == "efml" else 0x02000028}
    library.write(swapped, knobs={**knobs, "swapped": 1})

    (sample,) = (await sources(library).sample()).samples

    assert sample.gpu.memory == Memory(32 * GiB, 20 * GiB)
    assert refused(sample) == []


@pytest.mark.parametrize(("variant", "function"), [("hgml", "DeviceGetUtilizationRates"), ("cndev", "cndevGetUUID")])
async def test_one_call_that_fails_takes_nothing_else(
    variant: str, function: str, install: Install, sources: Open
) -> None:
    """A refused figure is missing, a device that does not say its name is left out, and each is a fault."""
    library = install(variant)
    library.write(DEVICE, replace(DEVICE, index=1, uuid="GPU-2"), fail={function: 999})

    answer = await sources(library).sample()

    if variant == "hgml":
        assert [sample.gpu.utilization.busy for sample in answer.samples] == [None, None]
        assert [fault.reason for sample in answer.samples for fault in sample.faults] == ["figures_unread"] * 2
    else:
        assert answer.samples == ()
        assert [(fault.reason, bool(fault.subject)) for fault in answer.faults] == [("driver_error", True)] * 2


# --- the layouts themselves, on bytes ---


def test_the_sizes_are_those_of_the_headers() -> None:
    """Table D, LP64, as a compiler lays them out: sizes and offsets of rows 50 to 57."""

    def layout(*fields: type) -> tuple[int, tuple[int, ...]]:
        kind = type("Laid", (ctypes.Structure,), {"_fields_": [(f"f{i}", field) for i, field in enumerate(fields)]})
        return ctypes.sizeof(kind), tuple(getattr(kind, f"f{i}").offset for i in range(len(fields)))

    assert layout(ctypes.c_int, ctypes.c_ulong) == (16, (0, 8))  # 50, dcmi_proc_mem_info
    assert layout(ctypes.c_int, U32, U64, U64) == (24, (0, 4, 8, 16))  # 51, cndevProcessInfo
    assert layout(U32, U64) == (16, (0, 8))  # 52, nvml v1
    assert layout(U32, U64, U32, U32) == (24, (0, 8, 16, 20))  # 52, nvml v2 and v3
    assert layout(U32, U32, U32, U64) == (24, (0, 4, 8, 16))  # 53, mxsmlExProcessInfo: pid at 8
    gpus = layout(ctypes.c_char * 32, U32, ctypes.c_ulong)
    assert gpus == (48, (0, 32, 40))
    assert layout(U32, ctypes.c_char * 64, U32, U64 * (64 * 48 // 8)) == (3144, (0, 4, 68, 72))  # 54, mxSmlProcessInfo
    assert metax.SIZE == 3144
    assert layout(U32, U64, U64, U64, U64) == (40, (0, 8, 16, 24, 32))  # 55, efmlMemory_v2
    assert layout(U32, U64, U64, U32, U32, U64 * 12) == (128, (0, 8, 16, 24, 28, 32))  # 56, xpumlProcessInfo
    assert layout(U32, U32, U64, U64, U32) == (32, (0, 4, 8, 16, 24))  # 57, rsmi_process_info
    rows = {row.name: row for row in ROWS}
    (mxsml,) = rows["mxsml"].processes[0][1]
    assert (mxsml.size, mxsml.pid, mxsml.used) == (24, 8, 16)
    (xpuml,) = rows["xpuml"].processes[0][1]
    assert (xpuml.size, xpuml.host_pid) == (128, 24)
    efml = rows["efml"].reserved[0][1]
    assert (efml.size, efml.free, efml.used, efml.reserved) == (40, 16, 24, 32)


HELD = st.integers(0, 2**40).filter(lambda held: held not in UNKNOWN)


@given(st.lists(st.tuples(st.integers(1, LARGEST_PID), HELD), max_size=20), st.sampled_from([16, 24]))
def test_what_was_written_is_what_is_read(held: list[tuple[int, int]], size: int) -> None:
    """Whatever a library writes in a layout that is known comes back as it was, and in no other layout."""
    known = (Entry(16, pid=0, used=8), Entry(24, pid=0, used=8))
    raw = b"".join(struct.pack("=I4xQ", *each) + b"\xff" * (size - 16) for each in held)
    after = raw + blank(4096)[len(raw) :]
    assert written(after) == len(raw)
    if held:
        entry = which("f", after, len(held), known)
        assert entry.size == size
        assert entries("f", after, len(held), entry, 2**40) == tuple(Listed(*each) for each in held)


@given(st.binary(max_size=512), st.integers(1, 20))
def test_any_bytes_are_read_or_refused(raw: bytes, count: int) -> None:
    """Garbage is refused by name, or read as processes that could be: it never ends the thread that reads it."""
    after = raw + blank(4096)[len(raw) :]
    try:
        entry = which(
            "f", after, count, (Entry(16, pid=0, used=8), Entry(24, pid=8, used=16), Entry(128, 0, 8, 24, 28))
        )
        found = entries("f", after, count, entry, 2**34)
    except LayoutError:
        return
    assert all(0 < each.pid <= LARGEST_PID and (each.memory is None or each.memory >= 0) for each in found)


@given(st.binary(max_size=4000), st.integers(0, 3))
def test_any_bytes_of_metaxs_older_list_are_read_or_refused(raw: bytes, count: int) -> None:
    """Garbage is refused by name, or read as processes that could be."""
    try:
        found = metax.entries(raw + blank(4 * metax.SIZE)[len(raw) :], count, "0000:3b:00.0", 2**34)
    except LayoutError:
        return
    assert all(0 < each.pid <= LARGEST_PID for each in found)


def test_who_is_on_no_place_of_this_gpu_is_not_left_out() -> None:
    """An address in another form must not lose a process: either it is this GPU's, or the list is refused."""
    entry = struct.pack("=I64sI32sI4xQ", 4001, b"python", 1, b"00000000:3B:00.0", 0, 5).ljust(metax.SIZE, b"\0")
    after = entry + blank(metax.SIZE)
    assert metax.entries(after, 1, "0000:3b:00.0", 2**34) == (Listed(4001, 5),)
    with pytest.raises(LayoutError, match="0 places"):
        metax.entries(after, 1, "0000:5e:00.0", 2**34)


def test_figures_that_are_none() -> None:
    """-1, all ones, a percentage above 100: unknown; what is beyond the device by more than 5 %: refused."""
    assert [ratio(percent) for percent in (0, 100, 101, -1, 0xEF, 2**32 - 1)] == [0.0, 1.0, None, None, None, None]
    assert balanced("f", 0, 0) is balanced("f", 100, -1) is None
    found = balanced("f", 1000, 1040)
    assert found is not None and found.used == 1000  # the figures are not read at one moment
    with pytest.raises(LayoutError):
        balanced("f", 1000, 1051)
    assert listed("f", 1, -1, 1000).memory is None
    with pytest.raises(LayoutError):
        listed("f", 0, 5, 1000)
