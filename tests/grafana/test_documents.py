"""The boards as Grafana gets them: the committed JSON, its ids, places, links and variables."""

from __future__ import annotations

import itertools
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from grafana.catalogue import BOARDS
from grafana.documents import Board, document, written
from grafana.places import PLACES, Place

ROOT = Path(__file__).parents[2]
COMMITTED = ROOT / "grafana" / "dashboards"
UNITS = {"bytes", "percentunit", "short", "none", "s", "watt", "celsius", "hertz", "joule", "ops"}
"""Of Grafana's 273 unit ids those that fit base units and ratios; `percent` would show 0.5 as 0.5 %."""

each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)


def read(board: Board) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((COMMITTED / f"{board.place.uid}.json").read_text(encoding="utf-8"))
    return found


def panels(board: Board) -> list[dict[str, Any]]:
    """Those that show something."""
    return [panel for panel in read(board)["panels"] if panel["type"] != "row"]


def expressions(board: Board) -> list[str]:
    asked = [target["expr"] for panel in panels(board) for target in panel["targets"]]
    return asked + [one["expr"] for one in read(board)["annotations"]["list"]]


def grouped(expression: str) -> set[str]:
    """Labels that an expression keeps."""
    made = re.findall(r'count_values\("(\w+)"', expression)
    return {label for group in (*re.findall(r"by \(([^)]*)\)", expression), *made) for label in group.split(", ")}


@each_board
def test_the_committed_json_is_what_the_modules_say(board: Board) -> None:
    """The JSON is neither edited by hand nor left behind by a change: `python -m grafana` writes it."""
    assert (COMMITTED / f"{board.place.uid}.json").read_text(encoding="utf-8") == written(board)
    assert document(board) == document(board)


def test_there_are_these_boards_and_no_others() -> None:
    """A board's address is a promise: bookmarks and alerts keep it."""
    names = ("cluster", "efficiency", "node", "namespace", "pod", "enforcement", "health")
    uids = [f"gpusteward-{name}" for name in names]
    assert [board.place.uid for board in BOARDS] == uids == [place.uid for place in PLACES]
    for folder in (COMMITTED, COMMITTED / "exported"):
        assert {path.name for path in folder.glob("*.json")} == {f"{uid}.json" for uid in uids}
    assert all(len(uid) <= 40 for uid in uids)
    assert len({board.place.title for board in BOARDS}) == len(BOARDS)


def test_a_board_fits_into_a_config_map_and_the_wheel_has_none() -> None:
    """The chart makes one of each of its copies (tests/deploy/test_package.py). The daemon's package has none."""
    assert all(path.stat().st_size < 2**19 for path in COMMITTED.iterdir())
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "grafana" not in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]


@each_board
def test_it_can_be_provisioned_from_a_file(board: Board) -> None:
    """It is classic JSON without what exports carry: no id, no version, no data source to be filled in by a person."""
    found = read(board)
    assert not {"id", "version", "__inputs", "__requires", "iteration"} & set(found)
    assert (found["editable"], found["schemaVersion"], found["tags"]) == (False, 39, ["gpusteward", "gpu"])
    assert found["title"] and found["description"]
    assert "${DS_" not in json.dumps(found)


@each_board
def test_each_panel_says_what_it_shows(board: Board) -> None:
    """A title, a description, a unit that fits, the chosen data source; series that can be told apart have a legend."""
    for panel in panels(board):
        assert panel["title"] and panel["description"].endswith("."), panel["title"]
        assert panel["datasource"]["uid"] == "${datasource}"
        field = panel["fieldConfig"]
        units = {one["value"] for over in field["overrides"] for one in over["properties"] if one["id"] == "unit"}
        assert {field["defaults"]["unit"], *units} <= UNITS, panel["title"]
        for target in panel["targets"]:
            assert target["datasource"]["uid"] == "${datasource}"
            if panel["type"] in ("timeseries", "state-timeline"):
                assert target["legendFormat"] not in ("", "__auto"), panel["title"]
            told = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert told <= grouped(target["expr"]), panel["title"]


@each_board
def test_ratios_are_ratios_and_bytes_are_bytes(board: Board) -> None:
    """A panel or column of bytes asks for bytes alone, one of ratios for ratios, whatever it is called."""
    for panel in panels(board):
        units = {
            over["matcher"]["options"]: one["value"]
            for over in panel["fieldConfig"]["overrides"]
            for one in over["properties"]
            if one["id"] == "unit"
        }
        names = {
            key.removeprefix("Value #"): title
            for transformation in panel.get("transformations", ())
            for key, title in transformation["options"].get("renameByName", {}).items()
        }
        for target in panel["targets"]:
            unit = units.get(names.get(target["refId"], ""), panel["fieldConfig"]["defaults"]["unit"])
            first = re.findall(r"gpusteward_[\w:]+", target["expr"])[0]
            if unit in ("bytes", "percentunit"):
                divided = " / " in target["expr"]
                assert re.search("[_:]ratio$" if unit == "percentunit" and not divided else "[_:]bytes$", first), panel[
                    "title"
                ]
            if unit in ("watt", "celsius", "hertz", "joule"):
                assert unit in first, panel["title"]


@each_board
def test_no_two_panels_overlap(board: Board) -> None:
    """Each cell of the grid belongs to at most one panel, and none is outside; ids are unique, and none is 0."""
    taken: set[tuple[int, int]] = set()
    for panel in read(board)["panels"]:
        at = panel["gridPos"]
        cells = set(itertools.product(range(at["x"], at["x"] + at["w"]), range(at["y"], at["y"] + at["h"])))
        assert cells and not cells & taken, panel["title"]
        assert at["x"] >= 0 and at["x"] + at["w"] <= 24
        taken |= cells
    ids = [panel["id"] for panel in read(board)["panels"]]
    assert len(set(ids)) == len(ids) and 0 not in ids


@each_board
def test_variables_are_chained_and_used(board: Board) -> None:
    """The data source comes first; each label is narrowed by those before it, read anew, and used."""
    source, *others = read(board)["templating"]["list"]
    assert (source["name"], source["type"], source["label"]) == ("datasource", "datasource", "Data source")
    order = ["cluster", "node", "uuid", "namespace", "pod"]
    names = [one["name"] for one in others]
    assert names == [name for name in order if name in names]
    for number, one in enumerate(others):
        assert (one["refresh"], one["datasource"]["uid"]) == (2, "${datasource}")
        asked = set(re.findall(r"\$(\w+)", one["query"]["query"]))
        assert asked - {"__range"} == set(names[:number])
        used = re.compile(rf'{one["name"]}{"=~" if one["multi"] else "="}"\${one["name"]}"')
        assert any(used.search(expression) for expression in expressions(board)), one["name"]
        if one["multi"]:
            assert (one["includeAll"], one["allValue"]) == (True, ".*")  # `.+` would lose series without the label
    repeated = {panel["repeat"] for panel in read(board)["panels"] if panel.get("repeat")}
    assert repeated <= {one["name"] for one in others if one["multi"]}


@each_board
def test_every_selector_is_of_the_chosen_cluster_and_node(board: Board) -> None:
    """No panel shows another cluster's numbers: each selector has both, and asks for what can be chosen."""
    chosen = {one.label for one in board.place.variables} | {"__rate_interval", "__range"}
    for expression in expressions(board):
        assert set(re.findall(r"\$(\w+)", expression)) <= chosen, expression
        assert "<" not in re.sub(r"\s<=?\s", "", expression)
        for family, selector in re.findall(r"((?:\w+:)?gpusteward_[\w:]+)(\{[^}]*\})?", expression):
            wanted = 'cluster="$cluster", node=' if "node" in chosen else 'cluster="$cluster"'
            assert wanted in selector, family


@each_board
def test_counters_are_only_looked_at_as_growth(board: Board) -> None:
    """A counter stands in rate or increase, over the step or the chosen time: its value starts anew with its daemon."""
    for expression in expressions(board):
        for family, _, span in re.findall(r"(gpusteward_\w+_(?:total|bucket))(\{[^}]*\})(\[[^\]]*\])?", expression):
            assert span in ("[$__rate_interval]", "[$__range]"), family
            assert re.search(rf"(rate|increase)\({family}\{{", expression)
        for function in re.findall(r"rate\([^\[]*(\[[^\]]*\])", expression):
            assert function == "[$__rate_interval]"


IN_FIVE_MINUTES = re.compile(r"(workload|node):gpusteward_\w+:(rate5m|ratio)")
"""What alerts/usage.yaml records, in its interval."""


@each_board
def test_no_query_is_so_long_that_nobody_reads_it(board: Board) -> None:
    """What is longer than 1,000 characters is recorded by a rule, which has a comment and a test."""
    assert max(map(len, expressions(board))) <= 1000


@each_board
def test_bars_do_not_count_twice(board: Board) -> None:
    """Growth is drawn in steps so wide that neighbours hardly overlap, and is never summed up from what is drawn."""
    for panel in panels(board):
        asked = [target["expr"] for target in panel["targets"] if target["range"]]
        grows, recorded = any("increase(" in one for one in asked), all(IN_FIVE_MINUTES.search(one) for one in asked)
        assert (panel.get("interval") == "5m") == (grows or bool(asked and recorded)), panel["title"]
        assert "sum" not in panel["options"].get("legend", {}).get("calcs", ())


def place_of(address: str) -> Place:
    (found,) = (place for place in PLACES if address.startswith(f"/d/{place.uid}?"))
    return found


@each_board
def test_links_keep_what_was_chosen(board: Board) -> None:
    """Each board leads to all others, with the time and each choice that the other one can show, and nothing else."""
    links = read(board)["links"]
    assert [place_of(link["url"]) for link in links] == [place for place in PLACES if place != board.place]
    here = {one.label: one.many for one in board.place.variables}
    for link in links:
        assert link["keepTime"] is True
        there = {one.label: one.many for one in place_of(link["url"]).variables}
        could = {label for label, many in there.items() if label in here and (many or not here[label])}
        assert set(re.findall(r"\$\{(\w+):queryparam\}", link["url"])) == {"datasource", *could}


@each_board
def test_names_lead_to_their_board(board: Board) -> None:
    """A click opens the name's board with labels that its row or series has; cluster and time are kept."""
    for panel in panels(board):
        for override in panel["fieldConfig"]["overrides"]:
            for link in (link for one in override["properties"] if one["id"] == "links" for link in one["value"]):
                to, what = place_of(link["url"]), override["matcher"]["options"]
                of = r"__data\.fields" if panel["type"] == "table" else r"__field\.labels"
                fields = re.findall(rf"var-(\w+)=\$\{{{of}\.(\w+)\}}", link["url"])
                asked = [one for one in panel["targets"] if panel["type"] == "table" or one["refId"] == what]
                labels = {label for target in asked for label in grouped(target["expr"])}
                assert fields and (panel["type"] != "table" or what in dict(fields)), panel["title"]
                assert all(variable == field and field in labels for variable, field in fields)
                assert {label for label, _ in fields} <= {one.label for one in to.variables}
                assert "${cluster:queryparam}" in link["url"] and "${__url_time_range}" in link["url"]
                single = {one.label for one in to.variables if not one.many} - {"cluster"}
                kept = set(re.findall(r"\$\{(\w+):queryparam\}", link["url"]))
                assert single <= kept | {label for label, _ in fields}, (panel["title"], to.uid)
