"""The page: when it is rendered, when a snapshot is withdrawn, and that no label value can spoil it."""

import asyncio
import gzip
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pkgutil import resolve_name
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.core import Metric, Sample

from builders import GIB, TAKEN_AT, device, gpu, leaf, memory, pod, snapshot, usage
from exporter.metrics import devices, gpus, pods
from exporter.metrics.exposition import Exposition
from exporter.metrics.family import Family, Row
from exporter.metrics.labels import LONGEST, written
from exporter.metrics.text import PageText
from exporter.model import Sharing, Snapshot, XidErrors
from exporter.rounds.latest import Latest
from scraped import families, series

OPENMETRICS = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3,*/*;q=0.1"


OVER_TIME = [
    "gpusteward_container_memory_byte_seconds",
    "gpusteward_device_memory_byte_seconds",
    "gpusteward_device_observed_seconds",
    "gpusteward_device_unknown_seconds",
]


def one_gpu(round: int = 1, monotonic: float = 5000.0, queue: str = "") -> Snapshot:  # noqa: A002
    who = pod(queue=queue)
    return snapshot(
        device(gpu(memory=memory(used=GIB)), attributed=GIB),
        round=round,
        monotonic=monotonic,
        usages=[usage(who, leaf())],
        pods=[who],
        sources_up={"devices": True},
        steady_for=600,
    )


def publish(latest: Latest, fact: Snapshot) -> None:
    latest.publish(fact, latest.tally.after(fact))


def exposition(latest: Latest) -> Exposition:
    return Exposition(latest, node="gpu-node-1", version="1.2.3")


async def test_one_rendering_serves_every_scraper_of_a_round() -> None:
    """Within a round all scrapers get the same page object; the next round has another."""
    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    for request in ({}, {"accept": OPENMETRICS}, {"accept_encoding": "gzip"}):
        first = exposing.page(now=5000, interval=5, **request)
        assert exposing.page(now=5004, interval=5, **request) is first
    before = exposing.page(now=5004, interval=5)
    publish(latest, one_gpu(round=2, monotonic=5005))
    after = exposing.page(now=5005, interval=5)
    assert after is not before
    assert b"gpusteward_rounds_total{" in after.body
    assert before.body != after.body


def rich(fact: Snapshot) -> Snapshot:
    """The same with figures of each kind that mostly lasts."""
    (one,) = fact.gpus
    hardware = replace(one.hardware, vbios_version="96", nvlink_errors={"replay": 2}, recovery_action="none")
    xids = {one.uuid: {31: XidErrors(2, 4000.0)}}
    return replace(fact, gpus=(replace(one, hardware=hardware),), xid_errors=xids)


def changed(what: str) -> Snapshot:
    """The next round, in which one thing is different of what mostly lasts."""
    before = rich(one_gpu(round=2, monotonic=5005, queue="other" if what == "a queue" else ""))
    (one,), (there,) = before.gpus, before.devices
    match what:
        case "a recovery action":
            one = replace(one, hardware=replace(one.hardware, recovery_action="gpu_reset"))
        case "an index":
            one, there = replace(one, index=3), replace(there, gpu=replace(there.gpu, index=3))
        case "a driver":
            one = replace(one, driver_version="999.1")
        case "a way to share":
            there = replace(there, sharing=Sharing.MPS)
        case "an XID error":
            return replace(before, xid_errors={one.uuid: {79: XidErrors(1, 4990.0)}})
        case "a GPU":
            return replace(before, gpus=(), gpus_present={one.uuid: one.index})
    return replace(before, gpus=(one,), devices=(there,), gpus_present={one.uuid: one.index})


@pytest.mark.parametrize(
    "what",
    [
        *("a recovery action", "an index", "a driver", "a way to share", "an XID error", "a GPU", "a queue"),
        "a node",
    ],
)
@pytest.mark.parametrize("accept", ["", OPENMETRICS])
async def test_what_lasts_is_written_anew_when_it_changes(what: str, accept: str) -> None:
    """A page on which a kept family was changed is the page of a daemon that has just started."""
    latest = Latest()
    exposing = exposition(latest)
    publish(latest, rich(one_gpu()))
    exposing.page(now=5000, interval=5, accept=accept)
    now = replace(changed(what), node="other") if what == "a node" else changed(what)
    publish(latest, now)
    page = exposing.page(now=5005, interval=5, accept=accept).body
    for kept in (gpus._SELDOM, gpus._XIDS, devices._INFO, pods._INFO):
        kept.keep(None, None)  # type: ignore[arg-type]
    again = exposition(latest).page(now=5005, interval=5, accept=accept).body
    assert page == again


async def test_what_lasts_has_the_names_that_were_asked_for() -> None:
    """A page with the other names of workloads does not get the text that was kept for one with the usual names."""
    latest = Latest()
    publish(latest, one_gpu())
    plain = exposition(latest).page(now=5000, interval=5).body
    exported = Exposition(latest, node="n", version="1", exported=True).page(now=5000, interval=5).body
    assert plain.count(b"exported_pod=") == 0
    assert exported.count(b"exported_pod=") == plain.count(b",pod=") > 0


async def test_a_failed_round_is_seen_though_it_brings_no_snapshot() -> None:
    """The counter of failures moves on the page while the snapshot stays the same."""
    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    exposing.page(now=5000, interval=5)
    latest.tally = latest.tally.after_failure()
    assert series(exposing.page(now=5001, interval=5).body, "round_failures_total") == {(): 1}


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
async def test_a_page_that_was_rendered_in_slices_is_the_page_that_prometheus_client_renders_at_once(
    monkeypatch: pytest.MonkeyPatch, accept: str
) -> None:
    """However many samples a slice has, the page is the same: each family once, its head first, no sample lost."""
    pods = [pod(uid=f"p{number}", name=f"p{number}") for number in range(30)]
    many = snapshot(
        device(gpu(memory=memory(used=30 * GIB)), attributed=30 * GIB),
        usages=[usage(who, leaf()) for who in pods],
        pods=pods,
        sources_up={"devices": True},
    )
    bodies = []
    for size in (10_000, 7, 1):
        monkeypatch.setattr("exporter.metrics.exposition.SLICE", size)
        latest = Latest()
        publish(latest, many)
        bodies.append(exposition(latest).page(now=5000, interval=5, accept=accept).body)
    assert bodies[0].count(b"gpusteward_container_memory_used_bytes{") == len(pods)
    assert bodies[1] == bodies[0] and bodies[2] == bodies[0]


async def test_between_two_turns_of_the_loop_one_slice_is_rendered(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape that comes meanwhile waits for `SLICE` samples at most; a family with more begins a slice of its own."""
    pods = [pod(uid=f"p{number}", name=f"p{number}") for number in range(30)]
    many = snapshot(
        device(gpu(memory=memory(used=30 * GIB)), attributed=30 * GIB),
        usages=[usage(workload, leaf()) for workload in pods],
        pods=pods,
        sources_up={"devices": True},
    )
    latest = Latest()
    publish(latest, many)
    exposing = exposition(latest)
    for scrape in (4990, 5000):
        exposing.page(now=scrape, interval=5)
    turns: list[dict[str, int]] = [{}]

    async def turn(_seconds: float) -> None:
        turns.append({})

    def collected(family: Family, rows: Iterable[Row], made: type[Metric] = Metric) -> Metric:
        metric = collect(family, rows, made)
        turns[-1]["collected"] = max(len(metric.samples), turns[-1].get("collected", 0))
        return metric

    def rendered(_: PageText, samples: list[Sample]) -> str:
        turns[-1]["rendered"] = turns[-1].get("rendered", 0) + len(samples)
        return ""

    collect = Family.of
    monkeypatch.setattr(Family, "of", collected)
    monkeypatch.setattr("exporter.metrics.exposition.SLICE", 7)
    monkeypatch.setattr(PageText, "lines", rendered)
    monkeypatch.setattr("exporter.metrics.exposition.asyncio.sleep", turn)
    await exposing.prepare(now=5005, interval=5)
    assert max(work.get("rendered", 0) for work in turns) == 7
    assert 7 not in {work.get("rendered", 0) for work in turns if work.get("collected", 0) > 7}


async def test_between_two_turns_of_the_loop_some_containers_and_pods_are_described(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """With 2,048 containers all of them took 25 ms in one stretch, in which no scrape and no probe was answered."""
    latest = Latest()
    exposing = exposition(latest)
    for scrape, first in ((4990, "p"), (5000, "q")):
        pods = [pod(uid=f"{first}{number}", name=f"{first}{number}") for number in range(30)]
        exposing.page(now=scrape, interval=5)
        publish(latest, snapshot(device(gpu()), usages=[usage(workload, leaf()) for workload in pods], pods=pods))
    turns = [Counter[str]()]

    async def turn(_seconds: float) -> None:
        turns.append(Counter())

    def counted(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def count(*arguments: Any, **more: Any) -> Any:
            turns[-1][name] += 1
            return work(*arguments, **more)

        return count

    for place in ("api.document.schema.Container", "metrics.labels.NodeLabels.container", "metrics.pods._description"):
        module, _, name = f"exporter.{place}".rpartition(".")
        owner = resolve_name(module)
        monkeypatch.setattr(owner, name, counted(name, getattr(owner, name)))
    monkeypatch.setattr("exporter.metrics.family.AT_ONCE", 7)
    monkeypatch.setattr("exporter.metrics.exposition.asyncio.sleep", turn)
    await exposing.prepare(now=5005, interval=5)
    for name in ("Container", "container", "_description"):
        assert sum(work[name] for work in turns) == 30
        assert max(work[name] for work in turns) == 7


async def test_a_page_is_compressed_slice_by_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole text is never in memory at once, and between two turns of the event loop one slice is compressed."""
    packed: list[int] = []

    class Packing:
        def compress(self, part: bytes) -> bytes:
            packed.append(sum(not line.startswith(b"#") for line in part.splitlines()))
            return b"part "

        def flush(self) -> bytes:
            return b"end"

    monkeypatch.setattr("exporter.metrics.exposition.zlib.compressobj", lambda *_, **__: Packing())
    monkeypatch.setattr("exporter.metrics.exposition.SLICE", 7)
    turns: list[int] = []

    async def turn(_seconds: float) -> None:
        turns.append(len(packed))

    monkeypatch.setattr("exporter.metrics.exposition.asyncio.sleep", turn)
    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    for scrape in (4990, 5000):
        exposing.page(now=scrape, interval=5, accept_encoding="gzip")
    packed.clear()
    await exposing.prepare(now=5005, interval=5)
    between = [sum(packed[before:later]) for before, later in pairwise([0, *turns, len(packed)])]
    assert max(between) == 7 and len(turns) > 4 and len(packed) > len(turns)
    page = exposing.page(now=5005, interval=5, accept_encoding="gzip")
    assert page.body == b"part " * len(packed) + b"end", "the scrape finds the page that was made ahead"


@pytest.mark.parametrize("formats", [("",), ("", OPENMETRICS)], ids=["one format", "two formats"])
async def test_a_small_page_is_rendered_without_a_pause(
    monkeypatch: pytest.MonkeyPatch, formats: tuple[str, ...]
) -> None:
    """A pause costs as much as some hundred samples, so a page of one slice has none; two pages have one in between."""
    pauses: list[float] = []

    async def turn(seconds: float) -> None:
        pauses.append(seconds)

    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    for scrape in (4990, 5000):
        for accept in formats:
            exposing.page(now=scrape, interval=5, accept=accept)
    publish(latest, one_gpu(round=2, monotonic=5005, queue="ahead"))
    monkeypatch.setattr("exporter.metrics.exposition.asyncio.sleep", turn)
    await exposing.prepare(now=5005, interval=5)
    assert len(pauses) == len(formats) - 1
    assert all(b'queue="ahead"' in exposing.page(now=5005, interval=5, accept=accept).body for accept in formats)


async def test_an_old_snapshot_is_withdrawn() -> None:
    """
    After three intervals the series of the snapshot are gone, also from the page that was cached before.

    The daemon's own stay, with the time of the old snapshot, and so do the counters of use over time: a range that
    begins in the gap would lose what they grew by. A new snapshot brings everything back.
    """
    latest = Latest()
    publish(latest, one_gpu(monotonic=5000))
    exposing = exposition(latest)
    fresh = exposing.page(now=5015, interval=5).body
    assert b"gpusteward_container_memory_used_bytes{" in fresh
    old = {m.name: m.samples for m in families(exposing.page(now=5015.1, interval=5).body)}
    withdrawn = ("gpusteward_gpu", "gpusteward_dev", "gpusteward_con")
    stay = [*OVER_TIME, "gpusteward_gpu_processes"]
    assert [name for name in old if name.startswith(withdrawn)] == stay, "the last is of the daemon itself"
    assert [s.value for s in old["gpusteward_device_observed_seconds"]] == [600]
    assert "gpusteward_pod_info" not in old
    assert [s.value for s in old["gpusteward_snapshot_timestamp_seconds"]] == [TAKEN_AT]
    assert {"gpusteward_build_info", "gpusteward_rounds", "gpusteward_source_up"} <= set(old)
    publish(latest, one_gpu(round=2, monotonic=5020))
    assert b"gpusteward_container_memory_used_bytes{" in exposing.page(now=5020, interval=5).body


async def test_a_longer_interval_keeps_a_snapshot_longer() -> None:
    """Three intervals are three of the present configuration, which a reload may change."""
    latest = Latest()
    publish(latest, one_gpu(monotonic=5000))
    exposing = exposition(latest)
    assert b"gpusteward_gpu_up{" not in exposing.page(now=5100, interval=5).body
    assert b"gpusteward_gpu_up{" in exposing.page(now=5100, interval=60).body


def test_before_the_first_round_there_is_a_page() -> None:
    """A daemon that has not seen its driver yet can be scraped, and claims nothing about it."""
    names = {m.name for m in families(exposition(Latest()).page(now=0, interval=5).body)}
    assert names == {
        "gpusteward_build_info",
        "gpusteward_round_duration_seconds",
        "gpusteward_rounds",
        "gpusteward_round_failures",
    }


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        ("", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/html,application/xhtml+xml,*/*;q=0.8", "text/plain; version=0.0.4; charset=utf-8"),
        ("text/plain; version=1.0.0; escaping=allow-utf-8", "text/plain; version=0.0.4; charset=utf-8"),
        (OPENMETRICS, "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        ("application/openmetrics-text;version=2.0.0", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        (
            "application/openmetrics-text; version=nonsense",
            "application/openmetrics-text; version=1.0.0; charset=utf-8",
        ),
    ],
)
def test_the_format_is_the_one_asked_for(accept: str, expected: str) -> None:
    """A scraper that names OpenMetrics gets it, any other the text format. The page is what its header says."""
    page = exposition(Latest()).page(now=0, interval=5, accept=accept)
    assert page.headers["Content-Type"] == expected
    assert page.body.endswith(b"# EOF\n") == ("openmetrics" in expected)


async def test_gzip_is_the_same_page() -> None:
    """A scraper that accepts gzip gets the same bytes, compressed and marked so. Any other gets them plain."""
    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    plain, packed = (exposing.page(now=5000, interval=5, accept_encoding=e) for e in ("", "br;q=1.0, gzip;q=0.8"))
    assert gzip.decompress(packed.body) == plain.body
    assert packed.headers["Content-Encoding"] == "gzip"
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Vary"] == plain.headers["Vary"] == "Accept, Accept-Encoding"


async def read_back(queue: str, accept: str) -> str:
    latest = Latest()
    publish(latest, one_gpu(queue=queue))
    page = exposition(latest).page(now=5000, interval=5, accept=accept).body
    assert page.endswith(b"# EOF\n") == bool(accept)
    assert len(families(page)) > 20
    ((told,),) = series(page, "pod_info", "queue")
    return told


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize(
    "queue",
    [
        'a"b',
        "a\nb",
        "a\\b",
        "a\\nb",
        '\\"',
        'x"} 1\ngpusteward_gpu_up 0\n',
        "ü",
        "\N{SNOWMAN}",
        "\U0001f600",
        "a\tb\rc",
        "",
    ],
)
async def test_any_label_value_comes_back(queue: str, accept: str) -> None:
    """Quotes, newlines, backslashes and all of Unicode reach the scraper as they were, and forge no sample."""
    assert await read_back(queue, accept) == queue


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize(
    ("queue", "expected"),
    [("a\udcffb", "a\\udcffb"), ("nul\0", "nul\\x00"), ("x" * 5000, "x" * LONGEST)],
)
async def test_a_value_that_no_scraper_could_read_is_written_out(queue: str, expected: str, accept: str) -> None:
    """A byte that was not UTF-8, a NUL and a value of 256 KiB break the page for no scraper."""
    assert await read_back(queue, accept) == expected


@given(st.text(alphabet=st.characters(codec=None), max_size=600))
def test_whatever_the_value_it_can_be_encoded(value: str) -> None:
    """Every string becomes one that UTF-8 can write, has no NUL, and is kept where it could be."""
    result = written(value)
    assert "\0" not in result.encode().decode()
    if len(value) <= LONGEST and "\0" not in value and not any("\ud800" <= c <= "\udfff" for c in value):
        assert result == value


@pytest.mark.parametrize("accept", ["", OPENMETRICS])
@pytest.mark.parametrize("accept_encoding", ["", "gzip"])
async def test_a_page_rendered_ahead_is_the_page_a_scrape_would_render(accept: str, accept_encoding: str) -> None:
    """Rendering family by family, ahead of the scrape, changes no byte; the scrape then finds it ready."""
    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    for scrape in (4990, 5000):
        exposing.page(now=scrape, interval=5, accept=accept, accept_encoding=accept_encoding)
    publish(latest, one_gpu(round=2, monotonic=5005, queue="new"))
    await exposing.prepare(now=5005, interval=5)
    ahead = exposing.page(now=5006, interval=5, accept=accept, accept_encoding=accept_encoding)
    asked = exposition(latest).page(now=5006, interval=5, accept=accept, accept_encoding=accept_encoding)
    assert (ahead.body, ahead.headers) == (asked.body, asked.headers)
    assert exposing.page(now=5007, interval=5, accept=accept, accept_encoding=accept_encoding) is ahead


async def test_while_a_page_is_being_rendered_the_one_before_is_served(monkeypatch: pytest.MonkeyPatch) -> None:
    """A scrape in the middle of a rendering neither waits for it nor renders a second time."""
    monkeypatch.setattr("exporter.metrics.exposition.SLICE", 7)
    latest = Latest()
    publish(latest, one_gpu())
    exposing = exposition(latest)
    exposing.page(now=4995, interval=5)
    await exposing.prepare(now=5000, interval=5)
    before = exposing.page(now=5000, interval=5)
    publish(latest, one_gpu(round=2, monotonic=5005, queue="new"))
    assert exposing.page(now=5005, interval=5) is before, "in the moment before its turn comes"
    rendering = asyncio.ensure_future(exposing.prepare(now=5005, interval=5))
    await asyncio.sleep(0)
    assert not rendering.done()
    assert exposing.page(now=5005, interval=5) is before
    await rendering
    assert b'queue="new"' in exposing.page(now=5005, interval=5).body


async def test_a_page_is_never_older_than_the_one_served_before(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    On a starved node a rendering may take longer than a round, and a scrape gets the page of the newer one meanwhile.

    The late page is dropped: a counter that falls is a restart to Prometheus, and its whole value would count again.
    """
    monkeypatch.setattr("exporter.metrics.exposition.SLICE", 7)
    latest = Latest()
    publish(latest, one_gpu(monotonic=5000))
    exposing = exposition(latest)
    for scrape in (4990, 5000):
        exposing.page(now=scrape, interval=5)
    publish(latest, one_gpu(round=2, monotonic=5005, queue="second"))
    rendering = asyncio.ensure_future(exposing.prepare(now=5005, interval=5))
    await asyncio.sleep(0)
    publish(latest, one_gpu(round=3, monotonic=5016, queue="third"))
    assert b'queue="third"' in exposing.page(now=5016, interval=5).body, "the first page is too old by now"
    await rendering
    assert b'queue="third"' in exposing.page(now=5016, interval=5).body


@pytest.mark.parametrize(
    ("scrapes", "ahead"),
    [
        pytest.param([], False, id="nobody"),
        pytest.param([5000], False, id="one look in a browser"),
        pytest.param([4970, 5000], False, id="every 30 s, just been here"),
        pytest.param([4945, 4975], True, id="every 30 s, due before the next round"),
        pytest.param([4945, 4972, 4975], True, id="two scrapers taking turns, the other is due"),
        pytest.param([4972, 4999, 5002], False, id="two scrapers taking turns, both have been here"),
        pytest.param([4700, 4730], False, id="gone for good"),
    ],
)
async def test_a_page_is_rendered_ahead_of_the_scrape_that_is_due(scrapes: list[float], ahead: bool) -> None:
    """Rounds come more often than scrapes: only the page that will be asked for is worth its rendering."""
    latest = Latest()
    publish(latest, one_gpu(monotonic=4999))
    exposing = exposition(latest)
    for at in scrapes:
        exposing.page(now=at, interval=5)
    publish(latest, one_gpu(round=2, monotonic=5002, queue="new"))
    await exposing.prepare(now=5002, interval=5)
    assert bool(exposing._pages) is ahead
    assert b'queue="new"' in exposing.page(now=5003, interval=5).body, "or it is rendered on demand"
