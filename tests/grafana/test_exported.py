"""The boards for the other names of labels: written of the plain ones, which differ in nothing else."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from exporter.metrics.labels import EXPORTED
from grafana.catalogue import BOARDS
from grafana.documents import Board, document, text
from grafana.exported import exported
from tools.exported import promql

COMMITTED = Path(__file__).parents[2] / "grafana" / "dashboards"
each_board = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)


def committed(board: Board) -> str:
    return (COMMITTED / "exported" / f"{board.place.uid}.json").read_text(encoding="utf-8")


@each_board
def test_the_committed_json_is_what_the_modules_say(board: Board) -> None:
    """`python -m grafana` writes both; with the names put back, the board is the plain one."""
    assert committed(board) == text(exported(document(board)))
    assert re.sub(f"exported_({'|'.join(EXPORTED)})", r"\1", committed(board)) == text(document(board))


@each_board
def test_no_plain_name_is_left(board: Board) -> None:
    """Neither in a query nor in a legend, a column, or what a click takes along."""
    made = json.loads(committed(board))
    queries = [target["expr"] for panel in made["panels"] for target in panel.get("targets", ())]
    queries += [one["expr"] for one in made["annotations"]["list"]]
    queries += [one["definition"] for one in made["templating"]["list"] if "definition" in one]
    assert queries and [query for query in queries if promql(query) != query] == []
    names = "|".join(EXPORTED)
    read = rf"\{{\{{({names})\}}\}}|fields\.({names})\b|labels\.({names})\b"
    assert re.findall(read, committed(board)) == []
    columns = {name for panel in made["panels"] for one in panel.get("transformations", ()) for name in named(one)}
    overrides = [one for panel in made["panels"] for one in panel.get("fieldConfig", {}).get("overrides", ())]
    overridden = {one["matcher"]["options"] for one in overrides if one["matcher"]["id"] == "byName"}
    assert not (columns | overridden) & EXPORTED.keys()


def named(transformation: dict[str, dict[str, dict[str, int]]]) -> list[str]:
    return list(transformation["options"].get("indexByName", {}))


@each_board
def test_variables_and_addresses_stay(board: Board) -> None:
    """Bookmarks and alerts lead to the same board, with the same choices."""
    made, plain = json.loads(committed(board)), document(board)
    assert made["uid"] == plain["uid"] and made["links"] == plain["links"]
    names = [[one["name"] for one in each["templating"]["list"]] for each in (made, plain)]
    assert names[0] == names[1]
