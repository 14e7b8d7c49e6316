"""
Panels: what a board is made of.

In: expressions, and how to look at them. Out: panels that know everything but their place and their selectors. Law:
each has a title, a description and a unit; what is used is solid, what is declared is dashed red, what there is is
dashed grey, what nobody explains is grey.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from grafana.expressions import spelled, told_apart
from grafana.places import Place

WIDTH = 24
"""Columns of Grafana's grid."""


class Look(StrEnum):
    """How a series is drawn."""

    PLAIN = "plain"
    LIMIT = "limit"
    CAPACITY = "capacity"
    PEAK = "peak"
    WHOLE = "whole"
    UNEXPLAINED = "unexplained"


def _line(color: str, dash: tuple[int, int] | None = None) -> list[dict[str, Any]]:
    style = {"fill": "dash", "dash": list(dash)} if dash else {"fill": "solid"}
    return [
        *_colored(color),
        {"id": "custom.lineStyle", "value": style},
        {"id": "custom.stacking", "value": {"mode": "none", "group": "A"}},
        {"id": "custom.fillOpacity", "value": 0},
        {"id": "custom.lineWidth", "value": 2},
    ]


def _colored(color: str) -> list[dict[str, Any]]:
    return [{"id": "color", "value": {"mode": "fixed", "fixedColor": color}}]


_LOOKS: Mapping[Look, list[dict[str, Any]]] = {
    Look.PLAIN: [],
    Look.LIMIT: _line("red", (10, 10)),
    Look.CAPACITY: _line("#8e8e8e", (20, 6)),
    Look.PEAK: _line("orange", (2, 6)),
    Look.WHOLE: _line("text"),
    Look.UNEXPLAINED: _colored("#6e6e6e"),
}


@dataclass(frozen=True, slots=True)
class Query:
    """
    One expression; its legend names the labels that tell its series apart.

    A legend with the number of a GPU names the vendor, too, where the number alone is no name.
    `to`: the board of what a series is about, which a click on it leads to.
    """

    expression: str
    legend: str = ""
    look: Look = Look.PLAIN
    to: Place | None = None

    @property
    def asked(self) -> str:
        """The expression with what the legend wants of it."""
        return told_apart(self.expression) if "{{gpu}}" in self.legend else self.expression


@dataclass(frozen=True, slots=True)
class Panel:
    """
    One panel. `width` and `height` are in cells of the grid; `body` is what its kind wants besides.

    Attributes:
        now: its queries are asked for one moment.
        table: their answers are rows.
        links: columns of a table, and the board that a click on them leads to.
        row: the label columns of a table: what its rows are told apart by.
    """

    kind: str
    title: str
    description: str
    queries: tuple[Query, ...]
    width: int
    height: int
    body: Mapping[str, Any]
    now: bool = False
    table: bool = False
    links: tuple[tuple[str, Place], ...] = ()
    row: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Row:
    """A heading; with `repeat` it and what follows are there once for each chosen value of that variable."""

    title: str
    repeat: str = ""


def _field(unit: str, overrides: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {"defaults": {"unit": unit, **more}, "overrides": overrides}


def _steps(*steps: tuple[float | None, str]) -> dict[str, Any]:
    return {"mode": "absolute", "steps": [{"value": value, "color": color} for value, color in steps]}


NEUTRAL = _steps((None, "text"))
ALARM = _steps((None, "green"), (1, "red"))
"""What should be nobody: one is red."""
STALE = _steps((None, "green"), (15, "orange"), (60, "red"))
"""An age in seconds; with the default interval of 5 s, series are withdrawn after 15 s."""
STEP = "5m"
"""The least width of a bar. `$__rate_interval` is the step and a scrape, and at least four scrapes: in bars of 15 s
each action would be counted four times."""
FULL = _steps((None, "green"), (0.9, "orange"), (1, "red"))


def stat(
    title: str, description: str, unit: str, *queries: Query, steps: Mapping[str, Any] = NEUTRAL, width: int = 4
) -> Panel:
    """Show the present value, large."""
    body = {
        "fieldConfig": _field(unit, [], thresholds=steps, color={"mode": "thresholds"}, noValue="none known"),
        "options": {
            "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
            "colorMode": "value",
            "graphMode": "none",
            "textMode": "auto" if len(queries) == 1 and not queries[0].legend else "value_and_name",
            "justifyMode": "auto",
            "orientation": "auto",
        },
    }
    return Panel("stat", title, description, queries, width, 4, body, now=True)


def lines(
    title: str,
    description: str,
    unit: str,
    *queries: Query,
    stacked: bool = False,
    bars: bool = False,
    top: float | None = None,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Show how it went. `bars`: of counts in each step; `top`: where the axis ends, for ratios."""
    overrides = [
        {"matcher": {"id": "byFrameRefID", "options": reference(number)}, "properties": _LOOKS[query.look]}
        for number, query in enumerate(queries)
        if _LOOKS[query.look]
    ]
    custom = {
        "drawStyle": "bars" if bars else "line",
        "lineInterpolation": "linear",
        "lineWidth": 1,
        "fillOpacity": 60 if bars else 30 if stacked else 10,
        "showPoints": "never",
        "spanNulls": False,
        "stacking": {"mode": "normal" if stacked or bars else "none", "group": "A"},
    }
    body = {
        "fieldConfig": _field(unit, overrides, custom=custom, min=0, **({} if top is None else {"max": top})),
        "options": {
            "legend": {
                "displayMode": "table",
                "placement": "right" if width > WIDTH // 2 else "bottom",
                "showLegend": True,
                "calcs": ["lastNotNull", "max"],
            },
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        **({"interval": STEP} if bars else {}),
    }
    return Panel("timeseries", title, description, queries, width, height, body)


def timeline(
    title: str,
    description: str,
    query: Query,
    words: Mapping[int, tuple[str, str]],
    *,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Show in which state each series was; `words` are the word and the colour of each value."""
    mapped = {str(value): {"text": text, "color": color, "index": value} for value, (text, color) in words.items()}
    body = {
        "fieldConfig": _field(
            "none",
            [],
            custom={"fillOpacity": 70, "lineWidth": 0},
            mappings=[{"type": "value", "options": mapped}],
            thresholds=NEUTRAL,
        ),
        "options": {
            "mergeValues": True,
            "showValue": "auto",
            "rowHeight": 0.8,
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "single", "sort": "none"},
        },
    }
    return Panel("state-timeline", title, description, (query,), width, height, body)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of values; without a unit it is not shown, because the row's labels are all there is to say."""

    title: str
    expression: str
    unit: str = ""
    steps: Mapping[str, Any] | None = None


def table(
    title: str,
    description: str,
    row: tuple[str, ...],
    *columns: Column,
    links: Mapping[str, Place] | None = None,
    width: int = 24,
    height: int = 8,
) -> Panel:
    """
    Show what is so now: one row for each set of the labels `row`, with the columns' values.

    The first column with a unit sorts it, largest first.
    """
    shown = [column for column in columns if column.unit]
    values = {f"Value #{reference(number)}": column.title for number, column in enumerate(columns)}
    if len(columns) == 1:
        values["Value"] = columns[0].title  # so Grafana calls the value of a panel with one query
    hidden = {name: True for name, titled in values.items() if titled not in {column.title for column in shown}}
    order = [*row, *values]
    overrides = [
        {
            "matcher": {"id": "byName", "options": column.title},
            "properties": [
                {"id": "unit", "value": column.unit},
                *(
                    [
                        {"id": "thresholds", "value": column.steps},
                        {"id": "custom.cellOptions", "value": {"type": "color-text"}},
                    ]
                    if column.steps
                    else []
                ),
            ],
        }
        for column in shown
    ]
    body = {
        "fieldConfig": _field("short", overrides, custom={"align": "auto", "filterable": True}, thresholds=NEUTRAL),
        "options": {
            "showHeader": True,
            "cellHeight": "sm",
            **({"sortBy": [{"displayName": shown[0].title, "desc": True}]} if shown else {}),
        },
        "transformations": [
            {"id": "merge", "options": {}},
            {
                "id": "organize",
                "options": {
                    "excludeByName": {"Time": True, **hidden},
                    "indexByName": {name: place for place, name in enumerate(order)},
                    "renameByName": {name: titled for name, titled in values.items() if name not in hidden},
                },
            },
        ],
    }
    queries = tuple(
        Query(spelled(column.expression, row) if len(columns) > 1 else column.expression) for column in columns
    )
    found = tuple((links or {}).items())
    return Panel("table", title, description, queries, width, height, body, now=True, table=True, links=found, row=row)


def reference(number: int) -> str:
    """Name the n-th query of a panel as Grafana does."""
    return chr(ord("A") + number)
