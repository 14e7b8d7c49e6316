"""The catalogue is data: checked when it is loaded, extended by the operator, and it says where a mistake is."""

from collections.abc import Callable

import pytest

from exporter.limits import resolve
from exporter.limits.decoders import DECODERS
from exporter.limits.loading import CatalogueError, builtin, check, extend, parse, with_own
from exporter.limits.patterns import fill, match, matching
from exporter.model import DeclaredPod

GIB = 2**30
NEW = b"""
- system: own
  title: Our own device plugin
  detect: {resources: [example.com/gpu-gib]}
  rows:
    - {mechanism: resource, key: example.com/gpu-count, what: count}
    - mechanism: resource
      key: example.com/gpu-gib
      what: memory
      unit: 1Gi
      per: total
      divide_by: [example.com/gpu-count]
"""


def test_builtin_is_sound() -> None:
    """Every system has a title, a source and rows; every row's decoder exists; every decoder has a row."""
    used = {row.decoder for system in builtin() for row in system.rows}
    assert used == set(DECODERS)
    for system in builtin():
        assert system.title and system.sources and system.rows, system.name


def test_own_rows(pod: Callable[..., DeclaredPod]) -> None:
    """An operator's row works like one of ours, and a row of the same key replaces ours."""
    catalogue = with_own(parse(NEW, "config"))
    (limit,) = resolve(pod({"example.com/gpu-gib": "8", "example.com/gpu-count": "2"}), None, (), catalogue).limits
    assert (limit.bytes, limit.system) == (4 * GIB, "own")
    replaced = (
        b"- {system: hami-nvidia, rows: [{mechanism: resource, key: nvidia.com/gpumem, what: memory, unit: 10Mi}]}"
    )
    (limit,) = resolve(pod({"nvidia.com/gpumem": "1024"}), None, (), with_own(parse(replaced, "config"))).limits
    assert limit.bytes == 10 * GIB
    (before,) = resolve(pod({"nvidia.com/gpumem": "1024"}), None, (), builtin()).limits
    assert before.bytes == GIB


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"- {system: own}", "$[0].title"),
        (b"- {system: own, title: x, rows: [{mechanism: resource, key: a}]}", "what"),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, unit: 1Xi}]}",
            "$[0].rows[0].unit",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, unit: '0'}]}",
            "$[0].rows[0].unit",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, unit: 1m}]}",
            "$[0].rows[0].unit: 0.001 is no unit of memory",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, unit: [1Mi, 1024m]}]}",
            "$[0].rows[0].unit: 1.024 is no unit of memory",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: compute, unit: '5'}]}",
            "no unit of compute",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: compute, unit: 1Mi}]}",
            "1048576 is no unit of compute",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, unit: [1]}]}",
            "a list of them - at `$[0].rows[0].unit`",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, unit: true}]}",
            "expected a quantity such as 1Mi",
        ),
        (b"- {system: own, title: x, rows: }", "$[0].rows"),
        (b"- {system: , title: x}", "$[0].system"),
        (b"- {system: own, title: x, rows: [{mechanism: oracle, key: a, what: memory}]}", "$[0].rows[0].mechanism"),
        (b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, decoder: eval}]}", "decoder"),
        (b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, trust: root}]}", "trust"),
        (b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, formula: x*2}]}", "formula"),
        (b"- {system: own, title: x, yields_to: [nobody]}", "no system is called nobody"),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, divide_by: [b]}]}",
            "no count row",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, loses_to: [b]}]}",
            "no row of own",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory, per: total}]}",
            "needs divide_by",
        ),
        (
            b"- {system: own, title: x, rows: [{mechanism: resource, key: a, what: memory-ratio, calibrate: b}]}",
            "no memory row of own is calibrated by it",
        ),
        (b"{", "config"),
        (b"- 5", "$[0]"),
    ],
)
def test_mistakes_are_named(text: bytes, told: str) -> None:
    """A mistake is refused at load, with the path of the key."""
    with pytest.raises(CatalogueError) as caught:
        with_own(parse(text, "config"))
    assert told in str(caught.value)


def test_check_finds_nothing_in_ours() -> None:
    """The package's own catalogue passes the checks that an operator's has to."""
    check(extend(builtin(), [], "nothing"))


@pytest.mark.parametrize(
    ("pattern", "text", "stars"),
    [
        ("nvidia.com/gpu", "nvidia.com/gpu", ()),
        ("nvidia.com/gpu", "nvidia.com/gpu.shared", None),
        ("nvidia.com/mig-*", "nvidia.com/mig-1g.5gb", ("1g.5gb",)),
        ("nvidia.com/mig-*", "nvidia.com/mig-", None),
        ("nvidia.com/container.*.gpu-memory.limit", "nvidia.com/container.a.b.gpu-memory.limit", ("a.b",)),
        ("amd.com/*_nps*", "amd.com/cpx_nps4", ("cpx", "4")),
        ("baidu.com/*_cgpu", "baidu.com/v100_cgpu_core", None),
        ("a*b*c", "aXbYbZc", ("X", "YbZ")),
    ],
)
def test_keys(pattern: str, text: str, stars: tuple[str, ...] | None) -> None:
    """A `*` stands for at least one character, is found among others, and can be put back."""
    assert match(pattern, text) == stars
    assert matching(pattern, {text, "nvidia.com/other"}) == ([] if stars is None else [(text, stars)])
    if stars is not None:
        assert fill(pattern, stars) == text
