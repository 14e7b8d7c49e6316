"""
A board becomes the JSON that Grafana loads.

In: boards. Out: classic dashboard documents: every panel in its place, selectors filled in, links to the other boards.
Law: the same board gives the same bytes; ids follow the order, and the uid never changes.
"""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grafana.panels import WIDTH, Panel, Row, reference
from grafana.places import DATASOURCE, PLACES, Place

SCHEMA = 39
"""Grafana 10.4's; later ones bring it up to date when they load it."""
SELECTORS = {
    "<daemon>": ("cluster", "node"),
    "<device>": ("cluster", "node", "uuid"),
    "<namespace>": ("cluster", "node", "namespace"),
    "<workload>": ("cluster", "node", "uuid", "namespace", "pod"),
}
"""Which labels a series has, by what it is about: a board's choices narrow what they can."""


@dataclass(frozen=True, slots=True)
class Annotation:
    """
    Moments or stretches of time to be marked in all graphs.

    `at_value`: the series' value is the time, in milliseconds; else it is a stretch for as long as the series is there.
    """

    title: str
    expression: str
    color: str
    label: str
    at_value: bool = False


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: where it is, what it is for, what it shows, in reading order."""

    place: Place
    description: str
    panels: tuple[Panel | Row, ...]
    annotations: tuple[Annotation, ...] = ()


def written(board: Board) -> str:
    """Return the file's text."""
    return json.dumps(document(board), indent=2, ensure_ascii=False) + "\n"


def document(board: Board) -> dict[str, Any]:
    """Return the dashboard's JSON."""
    place = board.place
    variables = [one.document(place.variables[:number]) for number, one in enumerate(place.variables)]
    return {
        "uid": place.uid,
        "title": place.title,
        "description": board.description,
        "tags": ["gpusteward", "gpu"],
        "schemaVersion": SCHEMA,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": [_datasource(), *variables]},
        "annotations": {"list": [_annotation(one, place) for one in board.annotations]},
        "links": [_link(place, to) for to in PLACES if to != place],
        "panels": list(_laid_out(board)),
    }


def _datasource() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus", "hide": 0}


def _link(here: Place, to: Place) -> dict[str, Any]:
    return {
        "title": to.title.removeprefix("gpusteward / "),
        "type": "link",
        "icon": "dashboard",
        "url": here.address(to),
        "keepTime": True,
        "includeVars": False,  # the address says which: not all that is chosen here can be shown there
        "targetBlank": False,
        "asDropdown": False,
        "tags": [],
        "tooltip": f"{to.title}, with what is chosen here",
    }


def _annotation(one: Annotation, place: Place) -> dict[str, Any]:
    return {
        "name": one.title,
        "datasource": DATASOURCE,
        "enable": True,
        "iconColor": one.color,
        "expr": _filled(one.expression, place),
        "titleFormat": f"{{{{{one.label}}}}}",
        "textFormat": "{{namespace}}/{{pod}} {{container}}",
        "tagKeys": one.label,
        "useValueForTime": one.at_value,
    }


def _laid_out(board: Board) -> Iterator[dict[str, Any]]:
    """Place the panels as text runs: left to right, a new line where the next does not fit, and under each heading."""
    x = y = line = 0
    for number, panel in enumerate(board.panels, start=1):
        if isinstance(panel, Row):
            y, x, line = y + line, 0, 0
            repeat = {"repeat": panel.repeat} if panel.repeat else {}
            at = {"x": 0, "y": y, "w": WIDTH, "h": 1}
            row = {"id": number, "type": "row", "title": panel.title, "collapsed": False, "panels": []}
            yield {**row, **repeat, "gridPos": at}
            y += 1
            continue
        if x + panel.width > WIDTH:
            y, x, line = y + line, 0, 0
        yield {"id": number, **_panel(panel, board.place, {"x": x, "y": y, "w": panel.width, "h": panel.height})}
        x, line = x + panel.width, max(line, panel.height)


def _panel(panel: Panel, place: Place, at: dict[str, int]) -> dict[str, Any]:
    body = copy.deepcopy(dict(panel.body))
    overrides = body["fieldConfig"]["overrides"]
    for column, to in panel.links:
        overrides.append(_linked("byName", column, to, place.address(to, panel.row)))
    for number, query in enumerate(panel.queries):
        if query.to:
            address = place.address(query.to, re.findall(r"{{(\w+)}}", query.legend), "__field.labels")
            overrides.append(_linked("byFrameRefID", reference(number), query.to, address))
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.description,
        "datasource": DATASOURCE,
        "gridPos": at,
        "targets": [
            {
                "refId": reference(number),
                "datasource": DATASOURCE,
                "editorMode": "code",
                "expr": _filled(query.asked, place),
                "legendFormat": query.legend or "__auto",
                "instant": panel.now,
                "range": not panel.now,
                "format": "table" if panel.table else "time_series",
            }
            for number, query in enumerate(panel.queries)
        ],
        **body,
    }


def _linked(matcher: str, options: str, to: Place, address: str) -> dict[str, Any]:
    link = {"title": to.title, "url": f"{address}&${{__url_time_range}}", "targetBlank": False}
    return {"matcher": {"id": matcher, "options": options}, "properties": [{"id": "links", "value": [link]}]}


def _filled(expression: str, place: Place) -> str:
    for mark, labels in SELECTORS.items():
        expression = expression.replace(mark, place.selector(*labels))
    return expression
