"""
What the kernel says of a DRM client: rows 1 to 19 of the table of texts.

Rows 1 and 9 come from the kernel's documentation (xe, panthor), rows 2 and 3 from an Intel A310. Row 4 comes from a
ROCm process on Linux 6.1, row 5 from amdgpu_top#87, row 6 from amdgpu today. Row 7 comes from a patch of a manual
page. Row 8 has the shape of i915. Row 10 comes from amd/xdna-driver#324. Row 11 is what vgem, virtio-gpu and nouveau
print. Rows 12 and 19 come from amdgpu's source. The others are made after the documentation.
"""

import pytest

from exporter.devices.kernel.engines import DECODERS, SHADERS, EngineTimes, advance, advance_all, of_class
from exporter.devices.kernel.fdinfo import Client, Engine, parse

MIB = 2**20


def client(*lines: str) -> Client:
    """Parse these lines, as a driver prints them."""
    found = parse("".join(f"{line}\n" for line in lines))
    assert found is not None
    return found


def test_the_kernels_own_example() -> None:
    """Row 1: what is resident counts, and what is shared is not surely its own."""
    found = client(
        "drm-driver: xe",
        "drm-client-id: 3",
        "drm-pdev: 0000:03:00.0",
        "drm-total-vram0: 23992 KiB",
        "drm-shared-vram0: 16 MiB",
        "drm-active-vram0: 0",
        "drm-resident-vram0: 23992 KiB",
    )
    assert (found.driver, found.id, found.pdev) == ("xe", 3, "0000:03:00.0")
    assert (found.memory, found.memory_sure) == (24567808, 7790592)


def test_total_is_not_what_is_held() -> None:
    """Row 2: a real i915 client; an engine of 0 ns is measured, and a capacity is no engine."""
    found = client(
        "drm-driver: i915",
        "drm-client-id: 36",
        "drm-pdev: 0000:3d:00.0",
        "drm-total-local0: 2700188 KiB",
        "drm-resident-local0: 2698140 KiB",
        "drm-engine-render: 52044119560 ns",
        "drm-engine-copy: 0 ns",
        "drm-engine-video: 7 ns",
        "drm-engine-capacity-video: 2",
    )
    assert found.memory == 2762895360
    assert found.engines == {
        "render": Engine(52044119560),
        "copy": Engine(0),
        "video": Engine(7, capacity=2),
    }


def test_more_shared_than_resident_is_a_lower_bound_of_zero() -> None:
    """Row 3: shared is a part of total; two local regions add up, and the host's region does not."""
    found = client(
        "drm-driver: i915",
        "drm-client-id: 2704",
        "drm-total-local0: 35916 KiB",
        "drm-shared-local0: 32 MiB",
        "drm-resident-local0: 12 KiB",
        "drm-resident-stolen-local0: 64 KiB",
        "drm-resident-system0: 520 KiB",
    )
    assert (found.memory, found.memory_sure) == (77824, 0)


def test_a_rocm_process_has_no_engines() -> None:
    """Row 4: old amdgpu; what is not printed of engines is unknown."""
    found = client(
        "pasid:\t32771",
        "drm-driver:\tamdgpu",
        "drm-pdev:\t0000:83:00.0",
        "drm-client-id:\t1203108",
        "drm-memory-vram:\t76 KiB",
        "drm-memory-gtt: \t44 KiB",
        "drm-memory-cpu: \t6200 KiB",
        "amd-requested-vram:\t76 KiB",
    )
    assert (found.memory, found.engines, found.problems) == (77824, {}, ())
    assert found.memory_sure == 0, "what is shared was not told"


def test_amdgpu_with_an_engine() -> None:
    """Row 5: the deprecated key alone, and one engine."""
    found = client(
        "drm-driver: amdgpu",
        "drm-client-id: 217",
        "drm-memory-vram: 2068 KiB",
        "drm-memory-gtt: 8192 KiB",
        "drm-engine-gfx: 107322799 ns",
    )
    assert (found.memory, found.engines) == (2117632, {"gfx": Engine(107322799)})


def test_two_names_of_one_number_count_once() -> None:
    """Row 6: today's amdgpu prints resident and its deprecated alias."""
    found = client(
        "drm-driver: amdgpu",
        "drm-client-id: 1",
        "drm-resident-vram: 37584 KiB",
        "drm-memory-vram: 37584 KiB",
        "amd-requested-vram: 37584 KiB",
    )
    assert found.memory == 38486016


def test_an_integrated_gpu_has_no_memory_of_its_own() -> None:
    """Row 7: without a local region its memory is unknown, not 0; the host's part is reported."""
    found = client(
        "drm-driver: i915",
        "drm-pdev: 0000:00:02.0",
        "drm-client-id: 5",
        "drm-total-system0: 6044 KiB",
        "drm-shared-system0: 0",
        "drm-resident-system0: 6044 KiB",
    )
    assert (found.memory, found.memory_sure) == (None, None)


def test_a_bare_number_is_bytes() -> None:
    """Row 8: not KiB."""
    assert client("drm-driver: i915", "drm-resident-stolen-local0: 1048576").memory == 1048576


def test_a_device_that_is_not_on_pci() -> None:
    """Row 9: panthor; its memory is the host's, a frequency is no count of cycles, and nanoseconds serve."""
    found = client(
        "drm-driver: panthor",
        "drm-client-id: 10",
        "drm-engine-panthor: 111110952750 ns",
        "drm-cycles-panthor: 94439687187",
        "drm-maxfreq-panthor: 1000000000 Hz",
        "panthor-resident-memory: 10396 KiB",
        "drm-resident-memory: 16480 KiB",
    )
    assert (found.pdev, found.memory) == ("", None)
    assert found.engines == {"panthor": Engine(111110952750, cycles=94439687187)}


def test_a_driver_that_tells_no_resident_bytes() -> None:
    """Row 10: amdxdna: total alone is no use; an engine's 0 ns is measured."""
    found = client(
        "drm-driver: amdxdna_accel_driver",
        "drm-client-id: 76",
        "drm-pdev: 0000:c5:00.1",
        "drm-engine-npu-amdxdna: 0 ns",
        "drm-total-memory: 0",
        "drm-shared-memory: 0",
        "drm-active-memory: 0",
    )
    assert (found.memory, found.engines) == (None, {"npu-amdxdna": Engine(0)})


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("pos:\t0\nflags:\t02100002\nmnt_id:\t26\nino:\t287\n", id="11 vgem, virtio-gpu, nouveau"),
        pytest.param(
            "pdev: 0000:03:00.0\npasid: 32769\nvram mem: 2068 kB\ngtt mem: 8192 kB\ngfx0: 3.21%\n",
            id="12 amdgpu of Linux 5.14",
        ),
        pytest.param("", id="nothing"),
        pytest.param("drm-driver:\n", id="no name"),
        pytest.param("drm-driver", id="cut in the first word"),
    ],
)
def test_no_driver_no_client(text: str) -> None:
    """Rows 11 and 12: without `drm-driver` nothing is known, and it is not 0."""
    assert parse(text) is None


@pytest.mark.parametrize("cut", ["drm-resident-syste", "drm-resident-local0: 5", "drm-resident-local0: 524288 Ki"])
def test_a_read_that_was_cut_short(cut: str) -> None:
    """Row 13: half a line says nothing: neither 5 bytes of 520 KiB, nor an exception."""
    found = parse(f"drm-driver: i915\ndrm-client-id: 1\n{cut}")
    assert found is not None
    assert (found.memory, found.problems) == (None, ())


@pytest.mark.parametrize("size", ["4 GiB", "524288 kB", "1.5 MiB", "-1", "0x10", "", "٣ KiB"])
def test_a_unit_that_nobody_knows(size: str) -> None:
    """Row 14: unknown, and a problem; never 4, never 524288."""
    found = client("drm-driver: xe", "drm-client-id: 1", f"drm-resident-vram0: {size}", "drm-resident-vram1: 1 MiB")
    assert (found.memory, found.memory_sure, found.problems) == (None, None, ("unit",))


def test_tiles_add_up() -> None:
    """Row 15: two tiles, and the host's region apart."""
    found = client(
        "drm-driver: xe",
        "drm-client-id: 1",
        "drm-resident-vram0: 512 MiB",
        "drm-resident-vram1: 1536 MiB",
        "drm-resident-gtt: 192 KiB",
    )
    assert found.memory == 2147483648


def test_a_name_that_a_tenant_chose_is_text() -> None:
    """Row 16: what looks like a key inside of a value is not one."""
    found = client(
        "drm-driver: amdgpu", "drm-client-id: 1", "drm-client-name: drm-resident-vram:0", "drm-resident-vram: 1 MiB"
    )
    assert found.memory == MIB


@pytest.mark.parametrize("number", ["not_a_number", "-1", "", "1" * 21])
def test_a_client_without_identity(number: str) -> None:
    """Row 17: it cannot be told from others, and says so."""
    found = client("drm-driver: i915", f"drm-client-id: {number}", "drm-resident-local0: 16384 KiB")
    assert (found.id, found.problems) == (None, ("client_id",))


def test_a_capacity_of_zero_is_one() -> None:
    """Row 18: it is against the rules, and is reported as a problem."""
    found = client("drm-driver: i915", "drm-client-id: 1", "drm-engine-compute: 5 ns", "drm-engine-capacity-compute: 0")
    assert (found.engines, found.problems) == ({"compute": Engine(5)}, ("capacity",))


def test_two_engines_of_one_name_add_up() -> None:
    """Row 19: amdgpu calls UVD and VCN both `dec`."""
    found = client("drm-driver: amdgpu", "drm-client-id: 1", "drm-engine-dec: 5 ns", "drm-engine-dec: 7 ns")
    assert found.engines == {"dec": Engine(12)}


def test_a_counter_that_goes_back_is_held() -> None:
    """Row 27: 1000, 900, 1500 ns, a second apart: nothing, then 500."""
    ratio, kept = advance(None, Engine(1000), 1.0)
    assert ratio is None
    ratio, kept = advance(kept, Engine(900), 2.0)
    assert ratio == 0
    ratio, _ = advance(kept, Engine(1500), 3.0)
    assert ratio == pytest.approx(500 / 1e9)


def test_cycles_need_no_clock() -> None:
    """Row 28: 2e9 cycles of 1e9 on four engines are half of them."""
    _, kept = advance(None, Engine(cycles=0, total_cycles=0, capacity=4), 1.0)
    ratio, _ = advance(kept, Engine(cycles=2 * 10**9, total_cycles=10**9, capacity=4), 1.0)
    assert ratio == 0.5


def test_a_device_that_slept_has_no_ratio() -> None:
    """Row 29: no cycle passed, so the ratio is unknown."""
    _, kept = advance(None, Engine(cycles=5, total_cycles=7), 1.0)
    assert advance(kept, Engine(cycles=5, total_cycles=7), 2.0)[0] is None


def test_an_engine_that_appears_and_disappears() -> None:
    """Row 30: never printed is unknown, so is a first sight; printed once and not now has done nothing since."""
    first, kept = advance_all({}, {}, 1.0)
    second, kept = advance_all(kept, {"gfx": Engine(800)}, 2.0)
    third, kept = advance_all(kept, {}, 3.0)
    assert [of_class(ratios, SHADERS) for ratios in (first, second, third)] == [None, None, 0.0]
    assert of_class(third, DECODERS) is None


def test_an_xe_engine_that_disappears_is_unknown() -> None:
    """A virtual function prints no engines: cycles that were printed once and are not now say nothing."""
    before = EngineTimes(5, 10, 1.0)
    assert advance(before, None, 2.0) == (None, before)
    assert advance(before, Engine(cycles=9), 2.0) == (None, before)


def test_a_ratio_is_never_above_one() -> None:
    """Clocks are read one after the other: more work than time is all of the time."""
    _, kept = advance(None, Engine(0), 1.0)
    assert advance(kept, Engine(3 * 10**9), 2.0)[0] == 1.0


def test_a_clock_that_stands_still_gives_no_ratio() -> None:
    """Two readings of one moment."""
    _, kept = advance(None, Engine(0), 1.0)
    assert advance(kept, Engine(5), 1.0)[0] is None
    assert advance(kept, None, 1.0)[0] is None
