"""
The boards as Grafana's own schema reads them: read by its generated models, written again, compared.

grafana-foundation-sdk is generated from the types of Grafana's frontend. What it does not know it drops, so a key that
does not come back is one that Grafana would not look at: a misspelt one, or one in the wrong place.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.cog.runtime import Runtime
from grafana_foundation_sdk.models.dashboard import Dashboard

from grafana.catalogue import BOARDS
from grafana.documents import Board, document
from grafana.places import POD

Document = dict[str, Any]

DEFAULTS = {
    "placement": "inControlsMenu",  # of links and annotations: it would hide them in a menu
}
"""What the models add to what they read: keys that we leave to Grafana."""


@pytest.fixture(scope="module", autouse=True)
def plugins() -> None:
    """Without its plugins the SDK keeps panels and queries as they are, whatever is in them."""
    register_default_plugins()


def returned(board: Document) -> Document:
    """Read by Grafana's models, and written by them."""
    written: Document = json.loads(json.dumps(Dashboard.from_json(copy.deepcopy(board)), cls=JSONEncoder))
    return written


def lost(ours: Any, theirs: Any, at: str = "") -> Iterator[str]:
    """Where something did not come back as it was."""
    if isinstance(ours, dict) and isinstance(theirs, dict):
        for key, value in ours.items():
            yield from lost(value, theirs[key], f"{at}/{key}") if key in theirs else [f"{at}/{key}"]
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for number, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            yield from lost(one, other, f"{at}/{number}")
    elif ours != theirs:
        yield at


def added(ours: Any, theirs: Any) -> Iterator[tuple[str, Any]]:
    """Which keys came with the models, and their values."""
    if isinstance(ours, dict):
        for key, value in theirs.items():
            yield from added(ours[key], value) if key in ours else [(key, value)]
    elif isinstance(ours, list):
        for one, other in zip(ours, theirs, strict=True):
            yield from added(one, other)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)
def test_grafanas_models_keep_all_of_it(board: Board) -> None:
    """Each key of a board comes back with its value; what is added is a default of Grafana's, and none of ours."""
    ours = document(board)
    theirs = returned(ours)
    assert list(lost(ours, theirs)) == []
    assert [one for one in added(ours, theirs) if one not in DEFAULTS.items()] == []


def test_each_default_is_one_that_is_added() -> None:
    """The list of what may be added has no entry that nothing needs."""
    found = [one for board in BOARDS for one in added(document(board), returned(document(board)))]
    assert [one for one in DEFAULTS.items() if one not in found] == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)
def test_each_kind_of_panel_and_query_is_known(board: Board) -> None:
    """A panel or data source of a kind that Grafana has not would be kept as it is, and show nothing."""
    for panel in document(board)["panels"]:
        assert panel["type"] in {*Runtime.panelcfg_variants, "row"}, panel["title"]
        assert {target["datasource"]["type"] for target in panel.get("targets", ())} <= set(Runtime.dataquery_variants)


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)
def test_what_overrides_set_is_known(board: Board) -> None:
    """The models keep whatever an override sets; as the panel's own default it has to come back."""
    found = document(board)
    for panel in found["panels"]:
        for override in panel.get("fieldConfig", {}).get("overrides", ()):
            for one in override["properties"]:
                where = panel["fieldConfig"]["defaults"]
                if one["id"].startswith("custom."):
                    where = where["custom"]
                where[one["id"].removeprefix("custom.")] = one["value"]
    assert list(lost(found, returned(found))) == []


def _first(board: Document, kind: str) -> Any:
    return next(panel for panel in board["panels"] if panel["type"] == kind)


SLIPS: dict[str, Callable[[Document], Any]] = {
    "refesh": lambda board: board,
    "multy": lambda board: board["templating"]["list"][1],
    "keeptime": lambda board: board["links"][0],
    "useValueforTime": lambda board: board["annotations"]["list"][0],
    "legendFromat": lambda board: _first(board, "timeseries")["targets"][0],
    "repeatdirection": lambda board: _first(board, "timeseries"),
    "unitt": lambda board: _first(board, "stat")["fieldConfig"]["defaults"],
    "fillOpacty": lambda board: _first(board, "timeseries")["fieldConfig"]["defaults"]["custom"],
    "spanNull": lambda board: _first(board, "state-timeline")["fieldConfig"]["defaults"]["custom"],
    "colourMode": lambda board: _first(board, "stat")["options"],
    "calc": lambda board: _first(board, "timeseries")["options"]["legend"],
    "cellheight": lambda board: _first(board, "table")["options"],
    "optionss": lambda board: _first(board, "timeseries")["fieldConfig"]["overrides"][0]["matcher"],
}


@pytest.mark.parametrize("key", SLIPS)
def test_a_misspelt_key_is_noticed(key: str) -> None:
    """Wherever a key is misspelt, it does not come back: so the test above would say which."""
    (board,) = (document(board) for board in BOARDS if board.place == POD)
    SLIPS[key](board)[key] = 1
    (where,) = lost(board, returned(board))
    assert where.endswith(f"/{key}")
