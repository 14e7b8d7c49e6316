"""
Whether a declared limit includes CUDA contexts: the catalogue's column, and what the resolver makes of it.

What comes in: the catalogue, an operator's rows, pods. What goes out: limits with `context` and `headroom`.
"""

from collections.abc import Mapping
from typing import Any

import pytest

from exporter.limits import LeafDevice, ResolvedLimit, resolve
from exporter.limits.explaining import as_data, as_text
from exporter.limits.loading import CatalogueError, builtin, with_own
from exporter.limits.rows import Catalogue
from exporter.model import Context, DeclaredContainer, DeclaredPod, DeviceKey, GpuUuid

GIB = 2**30
OWN = "nvidia.com/container.main.gpu-memory.limit"
DEVICES = (LeafDevice(DeviceKey(GpuUuid("GPU-0")), 0, memory=80 * GIB),)
ROW = {"mechanism": "annotation", "key": "acme.example/mib", "what": "memory", "unit": "1Mi"}
ACME = {"system": "acme", "title": "Acme", "detect": {"always": True}, "rows": [ROW]}


def resolved(
    resources: Mapping[str, str],
    annotations: Mapping[str, str] | None = None,
    catalogue: Catalogue | None = None,
    **before: Any,
) -> ResolvedLimit:
    """Resolve a pod of one container."""
    pod = DeclaredPod(
        "u", "team", "p", annotations=annotations or {}, containers=(DeclaredContainer("main", resources),)
    )
    found = resolve(pod, None, DEVICES, catalogue or builtin(), **before)
    return next(limit for limit in found.limits if limit.bytes is not None)


def acme(**more: Any) -> Catalogue:
    """Add a system of the operator's own."""
    return with_own([{**ACME, **more}], "test")


@pytest.mark.parametrize("name", [system.name for system in builtin()])
def test_each_system_says_where_its_column_was_read(name: str) -> None:
    """Included, excluded or unknown: each has a source, or says what was looked for."""
    (system,) = [system for system in builtin() if system.name == name]
    assert system.context_source


def test_the_winner_says_whether_contexts_are_included() -> None:
    """HAMi's hook counts contexts; our own annotation does not."""
    assert resolved({"nvidia.com/gpumem": "8192"}).context is Context.INCLUDED
    assert resolved({}, {OWN: "8Gi"}).context is Context.EXCLUDED


def test_an_operator_s_rows_may_say_it() -> None:
    """It is unknown where nothing is written. A row's own value comes before its system's."""
    written = {"acme.example/mib": "8192"}
    assert resolved({}, written, acme()).context is Context.UNKNOWN
    assert resolved({}, written, acme(context="included")).context is Context.INCLUDED
    own = {**ROW, "context": "excluded"}
    assert resolved({}, written, acme(context="included", rows=[own])).context is Context.EXCLUDED
    known = with_own([{"system": "hami-nvidia", "context": "unknown", "rows": []}], "test")
    assert resolved({"nvidia.com/gpumem": "8192"}, catalogue=known).context is Context.UNKNOWN


def test_another_word_is_refused_with_its_place() -> None:
    """A typing error is found at the start."""
    with pytest.raises(CatalogueError, match=r"'perhaps'.*\$\[0\]\.context"):
        acme(context="perhaps")


def test_a_lower_annotation_gains_no_allowance_beyond_an_included_limit() -> None:
    """A pod that lowers a limit that includes contexts may fill up to the old limit with contexts, and no further."""
    lowered = resolved({"nvidia.com/gpumem": "8192"}, {OWN: "7Gi"})
    assert (lowered.bytes, lowered.context, lowered.headroom) == (7 * GIB, Context.EXCLUDED, GIB)
    assert resolved({"nvidia.com/gpumem": "8192"}, {OWN: "9Gi"}).headroom == 0
    assert resolved({}, {OWN: "8Gi"}).headroom is None


def test_what_was_first_seen_keeps_its_system_s_word() -> None:
    """A raise that is refused must not turn an included limit into one with an allowance."""
    catalogue, key = acme(context="included"), "acme.example/mib"
    pod = DeclaredPod("u", "team", "p", annotations={key: "4096"}, containers=(DeclaredContainer("main", {}),))
    first = resolve(pod, None, DEVICES, catalogue).first_seen
    raised = resolved({}, {key: "8192"}, catalogue, first_seen=first)
    assert (raised.bytes, raised.context) == (4 * GIB, Context.INCLUDED)


def test_explain_says_it() -> None:
    """The JSON has the word, the text a sentence."""
    pod = DeclaredPod("u", "team", "p", annotations={OWN: "8Gi"}, containers=(DeclaredContainer("main", {}),))
    found = resolve(pod, None, DEVICES, builtin())
    assert [limit["context"] for limit in as_data(found)] == ["excluded"]
    assert "the limit does not include CUDA contexts" in as_text(found)
