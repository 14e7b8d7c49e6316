"""Our text of metrics is that of prometheus_client, in both formats, whatever labels and values say."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client import generate_latest as generate_text
from prometheus_client.core import Metric
from prometheus_client.openmetrics.exposition import generate_latest as generate_openmetrics

from exporter.metrics import CATALOGUE
from exporter.metrics.family import Family, Kind, counter, gauge, histogram, info
from exporter.metrics.labels import EXPORTED, labelled
from exporter.metrics.text import EOF, PageText, number

NAMES = ("node", "namespace", "pod", "container", "gpu", "uuid", "le_gume")
FAMILIES = [
    *(family for families in CATALOGUE.values() for family in families if family.kind is not Kind.HISTOGRAM),
    gauge("gauge", NAMES, 'Help with "quotes", a \\ and\na new line.'),
    counter("counter_total", NAMES, ""),
    info("thing_info", NAMES, "Info."),
]

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | st.sampled_from(['"', "\\", "\n", "%s", "{}"])
labels = st.dictionaries(st.sampled_from(NAMES), texts)
numbers = st.floats().filter(lambda number: str(number) != "-0.0") | st.integers(-(2**70), 2**70) | st.booleans()
rows = st.lists(st.tuples(labels, numbers), max_size=8)


class Registry(CollectorRegistry):
    """A registry with these families alone."""

    def __init__(self, *metrics: Metric) -> None:
        super().__init__()
        self._metrics = metrics

    def collect(self) -> Iterator[Metric]:
        yield from self._metrics


def written(*metrics: Metric, openmetrics: bool, exported: bool = False) -> bytes:
    """The page in our text."""
    text = PageText(openmetrics=openmetrics, exported=exported)
    parts = [part for metric in metrics for part in (text.head(metric), text.lines(metric.samples))]
    return "".join((*parts, EOF if openmetrics else "")).encode()


def reference(*metrics: Metric, openmetrics: bool) -> bytes:
    """The page by prometheus_client."""
    return (generate_openmetrics if openmetrics else generate_text)(Registry(*metrics))


@pytest.mark.parametrize("openmetrics", [True, False])
@given(family=st.sampled_from(FAMILIES), rows=rows)
def test_any_sample_has_the_text_of_prometheus_client(
    openmetrics: bool, family: Family, rows: list[tuple[dict[str, str], float]]
) -> None:
    """Names, help, type, label values with quotes and line breaks, and numbers of any size."""
    metric = family.of(rows)
    assert written(metric, openmetrics=openmetrics) == reference(metric, openmetrics=openmetrics)


@pytest.mark.parametrize("openmetrics", [True, False])
@given(
    own=labels,
    counted=st.lists(
        st.tuples(st.lists(st.integers(0, 2**40), min_size=3, max_size=3), st.floats(0, 1e9)), min_size=1, max_size=3
    ),
)
def test_a_histogram_has_it_too(openmetrics: bool, own: dict[str, str], counted: list[tuple[list[int], float]]) -> None:
    """Its samples have other names than the family."""
    kept = [(own | {"part": str(number)}, counts, total) for number, (counts, total) in enumerate(counted)]
    metric = histogram("seconds", (), "A histogram.").counted((0.5, 1.0), kept)
    assert written(metric, openmetrics=openmetrics) == reference(metric, openmetrics=openmetrics)


@pytest.mark.parametrize("openmetrics", [True, False])
def test_families_without_labels_have_it_too(openmetrics: bool) -> None:
    """Those of the process: prometheus_client makes them."""
    metrics = tuple(ProcessCollector(registry=None).collect())
    assert written(*metrics, openmetrics=openmetrics) == reference(*metrics, openmetrics=openmetrics)


def test_a_negative_zero_is_zero_whichever_came_first() -> None:
    """Both are equal, so that one text stands for both: a zero must not become "-0.0"."""
    number.cache_clear()
    assert [number(-0.0), number(0.0), number(0)] == ["0.0"] * 3


@given(rows=rows)
def test_labels_with_other_names_stand_in_their_order(rows: list[tuple[dict[str, str], float]]) -> None:
    """`exported_pod` comes before `gpu`, and `pod` after it."""
    family = FAMILIES[0]
    renamed = family.of(
        [({EXPORTED.get(key, key): value for key, value in own.items()}, number) for own, number in rows]
    )
    page = written(family.of(rows), openmetrics=True, exported=True)
    assert page == reference(renamed, openmetrics=True)


@pytest.mark.parametrize("exported", [True, False])
@given(own=st.dictionaries(st.sampled_from(["gpu", "pod", "le"]), texts), more=texts)
def test_labels_that_are_kept_say_the_same_on_each_page(exported: bool, own: dict[str, str], more: str) -> None:
    """The text that was written once is that of these labels, and the two kinds of names do not mix."""
    family = FAMILIES[0]
    for kept in (labelled("n", **own), labelled("n", **own), labelled("n", **own, container=more)):
        metric, plain = family.of([(kept, 1.0)]), family.of([(dict(kept), 1.0)])
        for _ in range(2):
            assert written(metric, openmetrics=True, exported=not exported)
            page = written(metric, openmetrics=True, exported=exported)
            assert page == written(plain, openmetrics=True, exported=exported)
