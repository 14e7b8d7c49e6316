"""
Writes a board as the JSON that Grafana loads.

What comes in: boards. What goes out: classic dashboard documents, with each panel in its place, selectors filled in,
and links to the other boards.

The rule: the same board gives the same bytes; ids follow the order, and the uid never changes.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard

from grafana.panels import WIDTH, Panel, Row
from grafana.places import DATASOURCE, PLACES, Place, filled

SCHEMA = 39  # Grafana 10.4's; later ones bring it up to date when they load it


def annotation(
    title: str, expression: str, color: str, label: str, *, at_value: bool = False
) -> dashboard.AnnotationQuery:
    """
    Mark moments or stretches of time in all graphs.

    `at_value`: the value of the series is the time, in milliseconds; else the stretch lasts as long as the series.
    """
    return dashboard.AnnotationQuery(
        title,
        DATASOURCE,
        icon_color=color,
        expr=expression,
        title_format=f"{{{{{label}}}}}",
        text_format="{{namespace}}/{{pod}} {{container}}",
        tag_keys=label,
        use_value_for_time=at_value,
    )


@dataclass(frozen=True, slots=True)
class Board:
    """One dashboard: where it is, what it is for, what it shows in reading order, and since when."""

    place: Place
    description: str
    panels: tuple[Panel | Row, ...]
    annotations: tuple[dashboard.AnnotationQuery, ...] = ()
    since: str = "now-1h"


def written(board: Board) -> str:
    """Return the file's text."""
    return text(document(board))


def text(loaded: dict[str, Any]) -> str:
    """Write a dashboard's JSON as a file has it."""
    return json.dumps(loaded, indent=2, ensure_ascii=False) + "\n"


def document(board: Board) -> dict[str, Any]:
    """Return the dashboard's JSON."""
    place = board.place
    datasource = dashboard.VariableModel(
        dashboard.VariableType.DATASOURCE, "datasource", "Data source", query="prometheus"
    )
    variables = [variable.model(place.variables[:number]) for number, variable in enumerate(place.variables)]
    model = dashboard.Dashboard(
        uid=place.uid,
        title=place.title,
        description=board.description,
        tags=["gpusteward", "gpu"],
        schema_version=SCHEMA,
        editable=False,
        graph_tooltip=dashboard.DashboardCursorSync.CROSSHAIR,
        refresh="30s",
        time=dashboard.DashboardDashboardTime(board.since),
        templating=dashboard.DashboardDashboardTemplating([datasource, *variables]),
        annotations=dashboard.AnnotationContainer(list(board.annotations)),
        links=[_link(place, to) for to in PLACES if to != place],
        panels=list(_placed(board)),
    )
    loaded: dict[str, Any] = json.loads(json.dumps(model, cls=JSONEncoder))
    annotations = loaded["annotations"]["list"]
    for entry in (*loaded["links"], *annotations):
        del entry["placement"]  # the one value that the SDK knows hides the entry in a menu
    for query in (*annotations, *(target for panel in loaded["panels"] for target in panel.get("targets", ()))):
        query["expr"] = filled(query["expr"], place.variables)
    return loaded


def _link(here: Place, to: Place) -> dashboard.DashboardLink:
    return dashboard.DashboardLink(
        to.title.removeprefix("gpusteward / "),
        icon="dashboard",
        tooltip=f"{to.title}, with what is chosen here",
        url=here.address(to),  # it names the variables: not all that is chosen here can be shown there
        keep_time=True,
    )


def _placed(board: Board) -> Iterator[dashboard.Panel | dashboard.RowPanel]:
    """Place the panels as text runs: left to right, a new line where the next does not fit."""
    x = y = line = 0
    for number, panel in enumerate(board.panels, start=1):
        model = panel.model(board.place)
        at = model.grid_pos or dashboard.GridPos()
        if x + at.w > WIDTH:
            x, y, line = 0, y + line, 0
        at.x, at.y, model.id_val = x, y, number
        x, line = x + at.w, max(line, at.h)
        yield model
