"""`gpusteward report` against a real Prometheus that has a week, and the sums of its pure part."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from itertools import pairwise
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.cli import main
from exporter.history.windows import Window, window_of
from exporter.report.ledger import EVERY, PARTS, Ledger, Part
from exporter.report.names import SLICED, Holder, Node, Place
from exporter.report.rendering import percentages
from exporter.report.summary import By, Prices, memory_of, summarize
from patience import PATIENCE
from prometheus.scraping import serving
from report import week
from report.week import DEVICES, GIB, HOUR, STEP

COMMAND = Path(sys.executable).parent / "gpusteward"
UNTIL = "2023-11-22T00:00:00Z"
CLOSE = 0.005
"""Of a figure: Prometheus extrapolates to the ends of a range, and a sample is four minutes from the next one."""


def said(*command: str, code: int = 0, **variables: str) -> str:
    """Run a command in this process: a new one takes 0.3 s of CPU. test_the_program_says_the_same starts one."""
    out, err = io.StringIO(), io.StringIO()
    with patch.dict(os.environ, variables, clear=True), redirect_stdout(out), redirect_stderr(err):
        try:
            ended = main(command)
        except SystemExit as refused:
            ended = refused.code if isinstance(refused.code, int) else 1
    assert ended == code, out.getvalue() + err.getvalue()
    return out.getvalue() if code == 0 else err.getvalue()


@dataclass
class Asking:
    """The command, and the Prometheus that it asks."""

    url: str

    def __call__(self, *words: str, code: int = 0, **variables: str) -> str:
        command = ["report", "--prometheus", self.url, "--since", "7d", "--until", UNTIL, *words]
        return said(*command, code=code, **variables)

    def json(self, *words: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self("--json", *words))
        return found


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The blocks of the week."""
    return week.blocks(tmp_path_factory.mktemp("week"))


@pytest.fixture(scope="module")
def report(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Asking]:
    """The command beside a Prometheus of the week, in a copy: another is run on `data` meanwhile, and locks it."""
    folder = tmp_path_factory.mktemp("prometheus")
    with serving(shutil.copytree(data, folder / "week"), folder) as one:
        yield Asking(one.url)


def lived(device: week.Device) -> float:
    """Seconds for which the daemon counted for a device."""
    return device.until - week.START - len(device.dead)


def answered(device: week.Device) -> float:
    """Seconds in which its driver answered."""
    return lived(device) - len(device.silent)


@pytest.mark.prometheus
def test_the_program_says_the_same(report: Asking) -> None:
    """A process of its own prints what these tests read, and its exit code says whether it could."""
    words = ("report", "--since", "7d", "--until", UNTIL, "--prometheus")
    done = subprocess.run([COMMAND, *words, report.url], capture_output=True, text=True, check=True, timeout=PATIENCE)
    assert done.stdout == report()
    refused = subprocess.run([COMMAND, *words, "http://127.0.0.1:1"], capture_output=True, text=True, check=False)
    assert (refused.returncode, refused.stdout) == (1, "")


@pytest.mark.prometheus
def test_the_memory_adds_up_to_capacity_times_time(report: Asking) -> None:
    """A restart, an outage of the driver, a lost half day and a node that was removed: each part is as scheduled."""
    found = {row["part"]: row["gib_hours"] for row in report.json()["memory"]}
    hours = GIB * HOUR
    expected = {
        "containers": sum(box.held * answered(one) for one in DEVICES for box in one.boxes) / hours,
        "ghost": sum(one.ghost * answered(one) for one in DEVICES) / hours,
        "driver did not answer": sum(one.size * len(one.silent) for one in DEVICES) / hours,
        "no samples": sum(one.size * len(one.dead) for one in DEVICES) / hours,
    }
    assert {part: found[part] for part in expected} == pytest.approx(expected, rel=CLOSE, abs=80 * 2 * STEP / HOUR)
    whole = sum(one.size * (one.until - week.START) for one in DEVICES) / hours
    assert sum(found.values()) == pytest.approx(whole, rel=CLOSE)
    assert sum(row["share"] for row in report.json()["memory"]) == pytest.approx(1)


@pytest.mark.prometheus
@pytest.mark.parametrize("by", list(By))
def test_the_gpu_hours_of_any_grouping_add_up(report: Asking, by: By) -> None:
    """Allocated is used, idle or unknown; with the rest it is the time of all GPUs, a MIG instance by its size."""
    found = report.json("--by", by)
    rows = {row[by.value]: row for row in found["rows"]}
    total = found["total"]
    rest = [rows.pop(name)["gpu_hours"] for name in ("(not allocated)", "(no MIG instance)", "(unknown)")]
    allocated = sum(row["allocated_gpu_hours"] for row in rows.values())
    for row in (*rows.values(), total):
        parts = (row["used_gpu_hours"], row["idle_gpu_hours"], row["unmeasured_gpu_hours"])
        assert sum(parts) == pytest.approx(row["allocated_gpu_hours"])
    whole = sum({one.uuid: one.until - week.START for one in DEVICES}.values()) / HOUR
    assert allocated + sum(rest) == pytest.approx(whole, rel=CLOSE)
    assert total["gpu_hours"] == pytest.approx(whole, rel=CLOSE)
    assert total["allocated_gpu_hours"] == pytest.approx(allocated)


@pytest.mark.prometheus
def test_each_workload_has_what_it_used(report: Asking) -> None:
    """Used, idle and unknown time of each workload; the memory that it held; the share of its limit that it did not."""
    rows = {row["workload"]: row for row in report.json("--by", "workload")["rows"]}
    for device in DEVICES:
        for box in device.boxes:
            row, weight = rows[f"{box.namespace}/Job/{box.workload}"], device.size / device.gpu_size
            allocated = box.share * answered(device) * weight / HOUR
            assert row["allocated_gpu_hours"] == pytest.approx(allocated, rel=CLOSE)
            used = None if box.sm is None else box.sm * answered(device) * weight / HOUR
            unknown = allocated if used is None else 0
            assert row["used_gpu_hours"] == pytest.approx(used or 0, rel=CLOSE)
            assert row["unmeasured_gpu_hours"] == pytest.approx(unknown, rel=CLOSE)
            assert row["memory_gib_hours"] == pytest.approx(box.held * answered(device) / GIB / HOUR, rel=CLOSE)
            if box.limit is None:
                assert row["declared_gib_hours"] is None
            else:
                assert row["unused_share"] == pytest.approx(1 - box.held / box.limit, abs=2 * CLOSE)


@pytest.mark.prometheus
def test_the_idle_allocations_have_owners_and_prices_and_the_worst_is_first(report: Asking, tmp_path: Path) -> None:
    """The notebook that did nothing costs most; its owner is its workload. What is not allocated has a price, too."""
    prices = tmp_path / "prices.yaml"
    prices.write_text("currency: EUR\ngpu_hour: {default: 1.5, NVIDIA H100: 4}\n")
    found = report.json("--prices", str(prices))
    assert [(one["namespace"], one["workload"], one["container"]) for one in found["idle"]] == [
        ("team-b", "notebook", "main"),
        ("team-a", "train", "main"),
        ("team-a", "small", "main"),
    ]
    hours = (answered(DEVICES[1]), 0.5 * answered(DEVICES[0]), 0.75 * answered(DEVICES[3]) / 4)
    expected = [4 * hours[0] / HOUR, 4 * hours[1] / HOUR, 1.5 * hours[2] / HOUR]
    assert [one["cost"] for one in found["idle"]] == pytest.approx(expected, rel=CLOSE)
    rows = {row["namespace"]: row for row in found["rows"]}
    allocated = {
        "team-a": 4 * answered(DEVICES[0]) + 1.5 * answered(DEVICES[3]) / 4,
        "team-b": 4 * answered(DEVICES[1]) + 1.5 * 0.5 * answered(DEVICES[2]),
    }
    for team, seconds in allocated.items():
        assert rows[team]["cost"] == pytest.approx(seconds / HOUR, rel=CLOSE)
    free = 1.5 * (0.5 * lived(DEVICES[2]) + lived(DEVICES[4]) / 2) / HOUR
    assert rows["(not allocated)"]["cost"] == pytest.approx(free, rel=CLOSE)
    bare = 1.5 * lived(DEVICES[4]) / 4 / HOUR
    assert rows["(no MIG instance)"]["cost"] == pytest.approx(bare, abs=1.6 * 2 * EVERY / HOUR)
    assert sum(row["cost"] or 0 for row in found["rows"]) == pytest.approx(found["total"]["cost"])
    assert found["currency"] == "EUR"


@pytest.mark.prometheus
def test_the_table_and_the_csv_say_the_same(report: Asking) -> None:
    """A person's table has the shares, the rows and a note about the node that ended; CSV has the rows as numbers."""
    text = report()
    assert "4 GPUs on 3 nodes" in text
    shares = [line.split("%")[0].split()[-1] for line in text.split("\n\n")[1].splitlines()[1:]]
    assert sum(round(10 * float(share)) for share in shares[:-1]) == 1000 == round(10 * float(shares[-1]))
    assert "note: nodes without samples at the end, which count until their last one: removed" in text
    rows = list(csv.DictReader(io.StringIO(report("--csv"))))
    assert [row["namespace"] for row in rows][-3:] == ["(not allocated)", "(no MIG instance)", "(unknown)"]
    team = next(row for row in rows if row["namespace"] == "team-a")
    assert f"team-a   {float(team['allocated_gpu_hours']):>15,.1f}".split() == next(
        line.split()[:2] for line in text.splitlines() if line.startswith("team-a  ")
    )


@pytest.mark.prometheus
def test_a_prometheus_with_narrow_limits_is_asked_about_shorter_times(
    report: Asking, data: Path, tmp_path: Path
) -> None:
    """A query that needs too many samples is halved, and the sums stay the same. What cannot be halved is an error."""
    with serving(data, tmp_path, "--query.max-samples=300") as narrow:
        asked = Asking(narrow.url).json()
    for mine, its in zip(report.json()["memory"], asked["memory"], strict=True):
        assert its["gib_hours"] == pytest.approx(mine["gib_hours"], rel=0.02, abs=1)
    (tmp_path / "two").mkdir()
    with serving(data, tmp_path / "two", "--query.max-samples=3") as useless:
        told = Asking(useless.url)(code=1)
    assert "cannot answer" in told and "too many samples" in told and "fix: ask about a shorter time" in told


@pytest.mark.prometheus
def test_a_time_without_series_is_said(report: Asking) -> None:
    """No table of zeros for a time of which nothing is known."""
    told = report("--until", "2020-01-01T00:00:00Z", code=1)
    assert "this Prometheus has no series of gpusteward in this time" in told


def test_a_model_without_a_price_is_named(tmp_path: Path) -> None:
    """Neither free of charge nor silently left out."""
    ledger = Ledger()
    place = Place(Node("", "n"), "GPU-0", "", "NVIDIA T4")
    ledger.capacity[place] = 1.0
    ledger.spans[place.node].widen(0.0, 3600.0)
    ledger.observed[place] = 3600.0
    ledger.days = [Part(0.0, 3600.0, read={place: 3600.0})]
    with pytest.raises(KeyError, match="NVIDIA T4"):
        summarize(ledger, By.NAMESPACE, Prices(of_model={"NVIDIA H100": 4}))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("gpu_hours: {default: 1}", ("gpu_hour",)),
        ("gpu_hour: {default: -1}", ("gpu_hour.default", "0 or more")),
        ("gpu_hour: {default: cheap}", ("gpu_hour.default: expected a number", "got cheap")),
        ("gpu_hour: [1]", ("gpu_hour",)),
    ],
)
def test_wrong_prices_are_refused_before_anything_is_asked(tmp_path: Path, text: str, words: tuple[str, ...]) -> None:
    """The message names the file and the key."""
    file = tmp_path / "prices.yaml"
    file.write_text(text)
    told = Asking("http://127.0.0.1:1")("--prices", str(file), code=2)
    for word in (str(file), *words):
        assert word in told


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--since", "soon"), "--since: 'soon' is not a time of ten minutes or more"),
        (("--since", "9m59s"), "--since: '9m59s' is not a time"),
        (("--until", "tomorrow"), "--until: 'tomorrow' is no time"),
        (("--until", "2999-01-01T00:00:00Z"), "is in the future"),
        (("--prometheus", "prometheus:9090"), "--prometheus: this is no URL of a Prometheus"),
    ],
)
def test_wrong_usage_is_explained(words: tuple[str, ...], expected: str) -> None:
    """The message names the flag, what was found and what was expected; nothing is asked."""
    assert expected in Asking("http://127.0.0.1:1")(*words, code=2)


def test_a_prometheus_that_is_not_there_is_explained() -> None:
    """The address, the cause and the fix."""
    told = Asking("http://127.0.0.1:1")(code=1)
    assert "http://127.0.0.1:1: connection refused" in told and "fix: set --prometheus" in told
    assert "no Prometheus is named" in said("report", code=2)


@pytest.mark.parametrize(
    ("status", "body", "expected"),
    [
        (401, b"Unauthorized", "it needs a login"),
        (403, b"Forbidden", "this login may not ask it"),
        (200, b"<html>", "a login page answers, or this is not the address of a Prometheus"),
        (302, b"", "answers with status 302"),
        (302, b"", "kubectl port-forward"),
        (429, b"slow down", "fix: ask again later or about a shorter time"),
        (429, b'{"status": "error", "error": "rate limited"}', "cause: rate limited"),
        (500, b"<html>", "fix: read the log"),
        (500, b'{"status": "error", "errorType": "internal", "error": "expanding"}', "fix: read the log"),
        (502, b"<html>", "a proxy reaches no Prometheus"),
        (503, b"<html>", "fix: check that the Prometheus behind the proxy is ready"),
        (504, b"gateway timeout", "raise the timeout of the proxy"),
        (
            422,
            b'{"status": "error", "errorType": "execution", "error": "found duplicate series for the match group"}',
            "fix: give each cluster a label `cluster`",
        ),
        (400, b'{"status": "error", "errorType": "bad_data", "error": "unknown function"}', "cause: unknown function"),
    ],
)
def test_another_answer_is_explained(status: int, body: bytes, expected: str) -> None:
    """A proxy that wants a login, a page of another program, a server that does not know a function."""

    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            assert self.headers["Authorization"] == "Bearer hunter2"
            self.send_response(status)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Be silent."""

    with HTTPServer(("127.0.0.1", 0), Answering) as server:
        Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        told = Asking(f"http://127.0.0.1:{server.server_port}")(code=1, GPUSTEWARD_PROMETHEUS_TOKEN="hunter2")
        server.shutdown()
    assert expected in told and "hunter2" not in told


@given(st.lists(st.floats(0, 1e18, allow_nan=False), min_size=1, max_size=12))
def test_printed_shares_add_up_to_100(amounts: list[float]) -> None:
    """Rounded, and exactly 100.0 in sum; no share is off by a tenth or more."""
    written = percentages(amounts)
    if sum(amounts) > 0:
        assert sum(round(10 * float(one.rstrip("%"))) for one in written) == 1000
        for one, amount in zip(written, amounts, strict=True):
            assert abs(float(one.rstrip("%")) - 100 * amount / sum(amounts)) < 0.1 + 1e-6


@st.composite
def ledgers(draw: st.DrawFn) -> Ledger:
    """Ledgers of up to three devices and four containers, also with figures that contradict one another."""
    seconds = st.floats(0, 1e6)
    ledger = Ledger(days=[Part(0.0, 1e6)])
    places = [Place(Node("", f"n{number % 2}"), f"GPU-{number}", "1" if number == 2 else "") for number in range(3)]
    for place in draw(st.lists(st.sampled_from(places), unique=True)):
        ledger.capacity[place] = draw(st.sampled_from([10.0, 80.0]))
        ledger.gpu_bytes[place.whole] = 80.0
        ledger.observed[place], ledger.unanswered[place] = draw(seconds), draw(seconds)
        ledger.days[0].read[place] = ledger.observed[place]
        first = draw(seconds)
        for span in (ledger.spans[place.node], ledger.lives[place]):
            span.widen(first, first + draw(seconds))
        if place.instance:
            ledger.days[0].sliced[place.whole] = draw(seconds)
            ledger.lives[place.part(SLICED).nameless].widen(first, first + draw(seconds))
        for part in draw(st.sets(st.sampled_from(PARTS))):
            ledger.parts[place][part] = draw(seconds)
    for number in range(draw(st.integers(0, 4))):
        holder = Holder(draw(st.sampled_from(places)), f"team-{number % 2}", f"pod-{number}", "main")
        ledger.allocated[holder] = draw(seconds)
        ledger.days[0].handed[holder.place] += ledger.allocated[holder]
        ledger.sm[holder], ledger.unmetered[holder] = draw(seconds), draw(seconds)
        ledger.memory[holder] = draw(seconds)
    return ledger


@given(ledgers(), st.sampled_from(list(By)))
def test_every_report_adds_up(ledger: Ledger, by: By) -> None:
    """Rows add up to the total; allocated is used + idle + unknown; no figure is negative; no memory is left out."""
    found = summarize(ledger, by, Prices(default=2.0))
    for field in ("allocated", "used", "idle", "unmeasured", "memory", "cost", "idle_cost"):
        whole = getattr(found.total, field)
        assert sum(getattr(row, field) for row in found.groups) == pytest.approx(whole)
        assert all(getattr(row, field) >= -1e-6 for row in found.groups)
    for row in found.groups:
        assert row.used + row.idle + row.unmeasured == pytest.approx(row.allocated)
    assert sum(one.idle for one in found.idle) == pytest.approx(found.total.idle)
    parts = sum(size for place in ledger.capacity for size in ledger.parts.get(place, {}).values())
    assert sum(memory_of(ledger).values()) >= parts - 1e-6


@given(st.floats(600, 1e8), st.floats(1e9, 2e9))
def test_parts_of_a_window_follow_one_another(length: float, end: float) -> None:
    """No gap, no overlap, none longer than a day; halves likewise."""
    window = Window(end - length, end)
    parts = list(window.parts())
    assert parts[0].start == window.start and parts[-1].end == window.end
    assert all(one.end == pytest.approx(after.start) for one, after in pairwise(parts))
    assert all(0 < one.seconds <= 86_400 + 1e-3 for one in parts)
    if (halves := window.halves()) is not None:
        assert halves[0].start == window.start and halves[0].end == halves[1].start and halves[1].end == window.end


def test_a_length_is_read_as_prometheus_writes_it() -> None:
    """Weeks, days, hours, minutes and seconds, in this order."""
    assert window_of("1w2d3h", None, 1e9).seconds == pytest.approx(9 * 86_400 + 3 * 3600)
