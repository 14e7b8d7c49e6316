"""
What a person would read in each panel, by Grafana's own code.

A real Prometheus has four hours of three nodes. The answers to each query go through @grafana/data in Node
(prometheus.drawing, node/draw.cjs): transformations, overrides, units, mappings, thresholds, links. It is the code that
runs in the browser; only the picture is not made.
"""

from __future__ import annotations

import copy
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from cluster.build import BuildError
from cluster.fixtures import require
from cluster.npm import GRAFANA, packages
from golden.mixed import NODE as MIXED
from grafana.catalogue import BOARDS
from grafana.documents import document
from grafana.panels import Panel
from grafana.places import NODE, POD
from prometheus.backfilled import blocks
from prometheus.drawing import Answered, Asked, Drawn, asked, drawn
from prometheus.scraping import Prometheus, serving

pytestmark = [pytest.mark.boards, pytest.mark.prometheus]

READS: dict[tuple[str, float], str] = {
    ("bytes", 8_589_934_592): "8 GiB",
    ("bytes", 1.5 * 2**40): "1.50 TiB",
    ("percentunit", 0.875): "87.5%",
    ("percentunit", 2): "200%",
    ("short", 12): "12",
    ("s", 5400): "1.50 hours",
    ("s", 0.25): "250 ms",
    ("watt", 350): "350 W",
    ("celsius", 64): "64 °C",
    ("hertz", 1_980_000_000): "1.98 GHz",
    ("joule", 987_654_321): "988 MJ",
    ("ops", 0.2): "0.200 ops/s",
    ("none", 3): "3",
}
"""How Grafana writes a value with each of our units."""

WRITTEN = {
    "bytes": r"[\d.]+ ([KMGT]i)?B",
    "percentunit": r"[\d.]+%",
    "short": r"[\d.]+",
    "s": r"[\d.]+ (ms|s|mins?|hours?|days?|weeks?)",
    "watt": r"[\d.]+ W",
    "celsius": r"[\d.]+ °C",
    "hertz": r"[\d.]+ [MG]Hz",
    "joule": r"[\d.]+ ([kMG])?J",
    "ops": r"[\d.]+ ops/s",
}
"""What the figures of a panel with that unit look like."""


@pytest.fixture(scope="module")
def hours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Prometheus]:
    """Run a Prometheus that has four hours of three nodes."""
    try:
        packages(GRAFANA)
    except BuildError as error:
        require([str(error)])
    folder = tmp_path_factory.mktemp("hours")
    with serving(blocks(folder), folder) as running:
        yield running


@pytest.fixture(scope="module")
def panels(hours: Prometheus) -> list[Asked]:
    """All panels of all boards, with the answers to their queries."""
    return [one for board in BOARDS for one in asked(hours, document(board))]


@pytest.fixture(scope="module")
def shown(panels: list[Asked]) -> Answered:
    """All of them, drawn."""
    return drawn(panels, READS)


def units(panel: Any) -> dict[str, str]:
    """The unit of each column that has one of its own; `""` is the panel's."""
    overrides = panel["fieldConfig"]["overrides"]
    set_ = [(over["matcher"]["options"], one) for over in overrides for one in over["properties"]]
    own = {column: one["value"] for column, one in set_ if one["id"] == "unit"}
    return {"": panel["fieldConfig"]["defaults"]["unit"], **own}


def unknown(shown: Answered, panel: Any) -> Iterator[tuple[str, str]]:
    """Words of a panel that Grafana does not know: kind, word."""
    defaults, overrides = panel["fieldConfig"]["defaults"], panel["fieldConfig"]["overrides"]
    set_ = [one for override in overrides for one in override["properties"]]
    named = {
        "units": units(panel).values(),
        "transformations": [one["id"] for one in panel.get("transformations", ())],
        "matchers": [one["matcher"]["id"] for one in overrides],
        "calcs": [
            *panel["options"].get("reduceOptions", {}).get("calcs", ()),
            *panel["options"].get("legend", {}).get("calcs", ()),
        ],
        "colors": [
            one["mode"] for one in (defaults.get("color"), *(x["value"] for x in set_ if x["id"] == "color")) if one
        ],
        "thresholds": [
            one["mode"]
            for one in (defaults.get("thresholds"), *(x["value"] for x in set_ if x["id"] == "thresholds"))
            if one
        ],
        "mappings": [one["type"] for one in defaults.get("mappings", ())],
    }
    return ((kind, word) for kind, words in named.items() for word in words if word not in shown.known[kind])


def wrong(one: Drawn, row: tuple[str, ...]) -> Iterator[str]:
    """What of a panel does not read as it is meant; `row` are the labels of a table's rows."""
    panel = one.asked.panel
    if panel["type"] == "table":
        yield from _table_wrong(one, row)
    elif panel["type"] == "stat":
        look = re.compile(WRITTEN[units(panel)[""]])
        yield from (f"{found}" for found in one.values if not look.fullmatch(found["text"]))
        yield from [] if one.values else ["no value"]
    else:
        yield from _series_wrong(one)


def _table_wrong(one: Drawn, row: tuple[str, ...]) -> Iterator[str]:
    panel = one.asked.panel
    names, of = [field["name"] for field in one.fields], units(panel)
    labels = [label for label in row if label in names]
    columns = [title for title in of if title]
    if names != [*labels, *columns] or set(row) - set(labels) - {"gpu_instance"}:
        yield f"columns {names}"
    if not {one["displayName"] for one in panel["options"].get("sortBy", ())} <= set(columns):
        yield "sorted by what is not there"
    for field in one.fields:
        look = re.compile(WRITTEN[of[field["name"]]] if field["name"] in of else ".*")
        yield from (f"{field['name']} {text}" for text in field["texts"] if text and not look.fullmatch(text))
    rows = Counter(zip(*(field["texts"] for field in one.fields if field["name"] in row), strict=True))
    subjects = {frozenset(series["metric"].items()) for answer in one.asked.answers.values() for series in answer}
    if set(rows.values()) != {1} or len(rows) != len(subjects):
        yield f"rows {rows}"


def _series_wrong(one: Drawn) -> Iterator[str]:
    panel = one.asked.panel
    series = [field for field in one.fields if field["type"] != "time"]
    words = {
        text["text"]
        for mapping in panel["fieldConfig"]["defaults"].get("mappings", ())
        for text in mapping["options"].values()
    }
    look = re.compile("|".join(words) or WRITTEN[units(panel)[""]])
    looks: dict[str, list[Any]] = {}
    for override in panel["fieldConfig"]["overrides"]:
        set_ = [one for one in override["properties"] if one["id"] != "links"]
        looks[override["matcher"]["options"]] = looks.get(override["matcher"]["options"], []) + set_
    if not series or set(looks) - {target["refId"] for target in panel["targets"]}:
        yield "no series"
    for field in series:
        if not field["name"].strip() or field["name"] == "Value":
            yield f"no name: {field['name']}"
        yield from (
            f"{field['name']} {text}" for text in (*field["texts"], *field["legend"]) if not look.fullmatch(text)
        )
        for wanted in looks.get(field["refId"], ()):
            key = wanted["id"]
            got = field["custom"].get(key.removeprefix("custom.")) if key.startswith("custom.") else field[key]
            if got != wanted["value"]:
                yield f"{field['name']} {key} {got}"
        if not looks.get(field["refId"]) and "lineStyle" in field["custom"]:
            yield f"{field['name']} is dashed"


def row(one: Asked) -> tuple[str, ...]:
    """The labels of a table's rows; ids are places on the board."""
    (board,) = (board for board in BOARDS if board.place.uid == one.board)
    panel = board.panels[one.panel["id"] - 1]
    assert isinstance(panel, Panel)
    return panel.row


def said(drawn_: Iterable[Drawn]) -> list[tuple[str, str]]:
    """Titles of panels, and what is wrong with them."""
    return [(one.asked.panel["title"], found) for one in drawn_ for found in wrong(one, row(one.asked))]


def test_each_unit_reads_well(shown: Answered, panels: list[Asked]) -> None:
    """All units of the boards, and no others, are tried with a value: 8589934592 reads "8 GiB"."""
    assert {unit for unit, _ in READS} == {unit for one in panels for unit in units(one.panel).values()}
    assert dict(zip(READS, shown.formats, strict=True)) == READS


def test_each_word_is_grafanas(shown: Answered, panels: list[Asked]) -> None:
    """Units, transformations, matchers, calculations, colours, thresholds and mappings are ones that Grafana has."""
    assert [(one.panel["title"], found) for one in panels for found in unknown(shown, one.panel)] == []


def test_each_panel_reads_as_it_is_meant(shown: Answered) -> None:
    """
    Every panel shows something of the hours, with names and units.

    A table has the columns that it names, in their order, and one row for each limit holder. A series has its legend's
    name and its query's look, and no other's. A state is a word.
    """
    assert said(shown.panels) == []


def test_a_node_of_two_vendors_reads_as_well(hours: Prometheus) -> None:
    """Where two GPUs are GPU 0, each has its row and its line in each panel that shows any; the vendor tells which."""
    chosen = {NODE: {"node": MIXED}, POD: {"namespace": "team-h", "pod": "both-0"}}
    boards = {board.place: document(board) for board in BOARDS}
    found = drawn([one for place, choice in chosen.items() for one in asked(hours, boards[place], **choice)]).panels
    known = [one for one in found if any(one.asked.answers.values())]
    assert said(known) == []
    lines = {
        one.asked.panel["title"]: {field["name"].rstrip() for field in one.fields if field["labels"]} for one in known
    }
    for title in ("Power", "Temperature", "Energy"):
        assert lines[title] == {"GPU 0 amd", "GPU 0 nvidia"}
    assert {"main GPU 0 amd", "main GPU 0 nvidia"} == lines["State"] == lines["Processes"]
    for title in ("GPUs", "Devices", "Limits"):
        (columns,) = [
            {field["name"]: field["texts"] for field in one.fields}
            for one in known
            if one.asked.panel["title"] == title and one.asked.panel["type"] == "table"
        ]
        assert (columns["gpu"], len(set(columns["uuid"]))) == (["0", "0"], 2), title


def test_a_column_without_answers_tears_no_row_apart(panels: list[Asked]) -> None:
    """Where no pod declared a limit, that column is empty: rows and the names of columns are what they were."""
    emptied = [
        replace(one, answers={**one.answers, target["refId"]: []})
        for one in panels
        if one.panel["type"] == "table" and len(one.panel["targets"]) > 1
        for target in one.panel["targets"]
    ]
    assert len(emptied) > 20
    assert said(drawn(emptied).panels) == []


def test_an_alarm_is_red_and_its_absence_green(shown: Answered) -> None:
    """In these hours five exceed their limits, and no breaker is open at the end."""
    stats = [one for one in shown.panels if one.asked.panel["type"] == "stat"]
    read = {(one.asked.board, one.asked.panel["title"]): one.values[0] for one in stats}
    over, breakers = read["gpusteward-cluster", "Over limit now"], read["gpusteward-enforcement", "Open breakers"]
    assert (over["text"], over["color"]) == ("5", "#F2495C")
    assert (breakers["text"], breakers["color"]) == ("0", "#73BF69")


def test_a_click_leads_to_what_is_there(shown: Answered, hours: Prometheus) -> None:
    """A link has the labels of its row or series, and some series has all of them: no board opens empty."""
    for kind in ("table", "timeseries"):
        followed = {goes for one in shown.panels if one.asked.panel["type"] == kind for goes in clicks(one)}
        assert len(followed) > 5
        for goes in followed:
            wanted = ", ".join(f'{label}="{value}"' for label, value in goes)
            family = "gpusteward_pod_info" if {"namespace", "pod"} & set(dict(goes)) else "gpusteward_gpu_up"
            assert hours.get("/api/v1/series", **{"match[]": f"{family}{{{wanted}}}"}), wanted


def clicks(one: Drawn) -> Iterator[tuple[tuple[str, str], ...]]:
    """What links choose on the board that they lead to; an empty cell cannot be clicked, nor can a series' times."""
    for field in one.fields if one.asked.panel["type"] == "table" else [f for f in one.fields if f["labels"]]:
        for number, links in enumerate(field["links"]):
            cells = {other["name"]: other["texts"][number] for other in one.fields if len(other["texts"]) > number}
            labels = field["labels"] or cells
            for link in links if field["texts"][number] else ():
                asked_for = parse_qs(urlsplit(link).query)
                goes = {name.removeprefix("var-"): value for name, (value,) in asked_for.items() if "var-" in name}
                assert goes and goes == {label: labels[label] for label in goes}, link
                yield tuple(goes.items())


def _table(panel: Any, number: int) -> Any:
    return panel["transformations"][number]["options"]


SLIPS: dict[str, Callable[[Any], Any]] = {
    "a unit": lambda panel: panel["fieldConfig"]["defaults"].update(unit="byte"),
    "a column's unit": lambda panel: panel["fieldConfig"]["overrides"][0]["properties"][0].update(value="bytess"),
    "a transformation": lambda panel: panel["transformations"][0].update(id="mergee"),
    "a matcher": lambda panel: panel["fieldConfig"]["overrides"][0]["matcher"].update(id="byNames_"),
    "a column": lambda panel: panel["fieldConfig"]["overrides"][0]["matcher"].update(options="Usedd"),
    "a renaming": lambda panel: _table(panel, 1)["renameByName"].update({"Value #A": "Usd"}),
    "what is hidden": lambda panel: _table(panel, 1).update(excludeByName={}),
    "the order": lambda panel: _table(panel, 1).update(indexByName={}),
    "the sorting": lambda panel: panel["options"].update(sortBy=[{"displayName": "Usedd", "desc": True}]),
    "a calculation": lambda panel: panel["options"]["reduceOptions"].update(calcs=["lastnotnull"]),
    "a legend's calculation": lambda panel: panel["options"]["legend"].update(calcs=["maximum"]),
    "a query's look": lambda panel: panel["fieldConfig"]["overrides"][0]["matcher"].update(options="Z"),
    "a colour": lambda panel: panel["fieldConfig"]["defaults"].update(color={"mode": "threshold"}),
    "thresholds": lambda panel: panel["fieldConfig"]["defaults"]["thresholds"].update(mode="relative"),
    "a mapping": lambda panel: panel["fieldConfig"]["defaults"]["mappings"][0].update(type="values"),
}
ON = {
    "stat": {"a unit", "a calculation", "a colour", "thresholds"},
    "timeseries": {"a legend's calculation", "a query's look"},
    "state-timeline": {"a mapping"},
}
"""On which kind of panel each slip is made; the others on tables."""


@pytest.fixture(scope="module")
def slipped(panels: list[Asked]) -> dict[str, Drawn]:
    """A panel with each of the slips, drawn."""
    wanted = {"table": "GPU memory quota", "timeseries": "Memory"}
    changed = []
    for slip, make in SLIPS.items():
        kind = next((kind for kind, slips in ON.items() if slip in slips), "table")
        found = [one for one in panels if one.panel["type"] == kind]
        one = next(one for one in found if wanted.get(kind) in (None, one.panel["title"]))
        panel = copy.deepcopy(dict(one.panel))
        make(panel)
        changed.append(replace(one, panel=panel))
    return dict(zip(SLIPS, drawn(changed).panels, strict=True))


@pytest.mark.parametrize("slip", SLIPS)
def test_a_slip_is_noticed(slip: str, shown: Answered, slipped: dict[str, Drawn]) -> None:
    """A misspelt unit, transformation, column, …: the tests above would say so."""
    one = slipped[slip]
    assert [*unknown(shown, one.asked.panel)] or said([one])
