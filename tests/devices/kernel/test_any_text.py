"""Whatever a file says, nothing is raised, and no number is made up: the parsers on texts that no kernel wrote."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.devices.kernel import dmem, fdinfo, topology
from exporter.devices.kernel.engines import EngineTimes, advance
from exporter.devices.kernel.fdinfo import Engine

KEYS = st.sampled_from(
    [
        "drm-driver",
        "drm-client-id",
        "drm-pdev",
        "drm-resident-vram",
        "drm-resident-vram0",
        "drm-memory-vram",
        "drm-shared-vram",
        "drm-shared-vram0",
        "drm-resident-gtt",
        "drm-engine-gfx",
        "drm-engine-capacity-gfx",
        "drm-cycles-rcs",
        "drm-total-cycles-rcs",
    ]
)
VALUES = st.one_of(
    st.from_regex(r"[0-9]{1,22}( KiB| MiB| GiB| ns|)", fullmatch=True), st.text(max_size=12), st.just("amdgpu")
)
LINES = st.lists(st.tuples(KEYS, VALUES), max_size=12).map(lambda pairs: "".join(f"{k}:\t{v}\n" for k, v in pairs))


@given(st.one_of(st.text(), LINES, LINES.map(lambda text: f"drm-driver:\tamdgpu\n{text}")))
def test_a_client_is_never_surely_more_than_it_is(text: str) -> None:
    """What is surely its own is from 0 to what it holds, and known exactly where that is."""
    client = fdinfo.parse(text)
    if client is None:
        return
    memory, sure = client.memory, client.memory_sure
    assert (memory is None) == (sure is None)
    assert memory is None or sure is None or 0 <= sure <= memory
    assert all(engine.capacity >= 1 for engine in client.engines.values())


@given(LINES)
def test_the_order_of_lines_decides_nothing_but_doublets(text: str) -> None:
    """A driver may print its keys in any order; of a key that stands there twice the first counts."""
    lines = dict(reversed([line.split(":", 1) for line in text.splitlines() if ":" in line]))
    ordered = "".join(f"{key}:{value}\n" for key, value in sorted(lines.items()) if "\t" in value)
    reverse = "".join(f"{key}:{value}\n" for key, value in sorted(lines.items(), reverse=True) if "\t" in value)
    one, other = fdinfo.parse(ordered), fdinfo.parse(reverse)
    assert (one is None) == (other is None)
    if one is not None and other is not None:
        assert (one.memory, one.memory_sure, one.id, one.engines) == (
            other.memory,
            other.memory_sure,
            other.id,
            other.engines,
        )


@given(st.text(), st.text(), st.lists(st.text(), max_size=3))
def test_a_node_of_any_text(gpu_id: str, properties: str, banks: list[str]) -> None:
    """None, or a GPU with a number."""
    node = topology.parse(gpu_id, properties, banks)
    assert node is None or node.gpu_id > 0


@given(st.text())
def test_counts_by_cgroup_of_any_text(text: str) -> None:
    """Sums of what was understood, of devices with an address."""
    assert all(size >= 0 and pci.count(":") == 2 for pci, size in dmem.own(text).items())


NUMBERS = st.none() | st.integers(0, 2**63)


@given(
    st.none() | st.builds(EngineTimes, st.integers(0, 2**63), NUMBERS, st.floats(0, 1e9)),
    st.none() | st.builds(Engine, NUMBERS, NUMBERS, NUMBERS, st.integers(1, 64)),
    st.floats(0, 1e9),
)
def test_a_ratio_is_one(before: EngineTimes | None, engine: Engine | None, at: float) -> None:
    """From 0 to 1, or unknown; a counter that is kept never falls."""
    ratio, kept = advance(before, engine, at)
    assert ratio is None or 0 <= ratio <= 1
    if before is not None and kept is not None and (before.passed is None) == (kept.passed is None):
        assert kept.busy >= before.busy
