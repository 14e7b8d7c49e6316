"""
The panels of a board.

What comes in: a kind of panel (grafana.kinds), its queries and their looks. What goes out: Grafana's model of the
panel, without its position, and with expressions that are not narrowed yet.

The rule: a panel looks the same on each board; its links depend on the variables of the board.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Self

from grafana_foundation_sdk.models import common, dashboard, prometheus, table

from grafana.expressions import spelled, with_vendor
from grafana.places import DATASOURCE, PLACES, Place

Steps = dashboard.ThresholdsConfig
WIDTH = 24  # columns of Grafana's grid
Properties = Mapping[str, object]  # what an override sets, by its name
PLAIN: Properties = {}


@dataclass(frozen=True, slots=True)
class Query:
    """One expression of a panel, with its legend (in a table: its column's title) and what an override sets for it."""

    reference: str
    expression: str
    name: str
    properties: Properties
    to: Place | None = None


@dataclass(slots=True)
class Panel:
    """One panel. `size` is its height and width in cells; `row` are the labels that tell the rows of a table apart."""

    kind: str
    title: str
    size: tuple[int, int]
    fields: dashboard.FieldConfig
    options: object = None
    row: tuple[str, ...] = ()
    interval: str | None = None
    points: int | None = None
    description: str = ""
    queries: list[Query] = field(default_factory=list)

    def about(self, sentence: str) -> Self:
        """Add to the description."""
        self.description = f"{self.description} {sentence}".lstrip()
        return self

    def every(self, interval: str) -> Self:
        """Ask for points that are at least so far apart: what is recorded each five minutes has no others."""
        self.interval = interval
        return self

    def at_most(self, points: int) -> Self:
        """Ask for fewer points than there are pixels, where many series are summed up."""
        self.points = points
        return self

    def query(self, expression: str, legend: str = "", look: Properties = PLAIN, to: Place | None = None) -> Self:
        """
        Add a query. The legend names the labels that tell its series apart; a click on one leads to the board `to`.

        A legend with the number of a GPU names the vendor, too, where the number alone is no name.
        """
        return self._with(with_vendor(expression) if "{{gpu}}" in legend else expression, legend, look, to)

    def column(self, title: str, expression: str, unit: str = "", steps: Steps | None = None) -> Self:
        """Add a column of values to a table. Without a unit it is hidden: the labels of the row say it all."""
        colored = {"thresholds": steps, "custom.cellOptions": {"type": "color-text"}} if steps else {}
        return self._with(expression, title, {"unit": unit, **colored} if unit else PLAIN)

    def _with(self, expression: str, name: str, properties: Properties, to: Place | None = None) -> Self:
        reference = chr(ord("A") + len(self.queries))  # as Grafana names the queries of a panel
        self.queries.append(Query(reference, expression, name, properties, to))
        return self

    def model(self, place: Place) -> dashboard.Panel:
        """Return the panel as Grafana loads it, with the links of the board at `place`."""
        panel = dashboard.Panel(
            self.kind,
            title=self.title,
            description=self.description,
            datasource=DATASOURCE,
            grid_pos=dashboard.GridPos(*self.size),
            interval=self.interval,
            max_data_points=self.points,
            targets=[self._target(query) for query in self.queries],
            field_config=dashboard.FieldConfigSource(self.fields, list(self._overrides(place))),
            options=self.options,
        )
        if self.row:
            shown = [query.name for query in self.queries if query.properties]
            by_first = [common.TableSortByFieldState(name, desc=True) for name in shown[:1]]
            panel.options = table.Options(sort_by=by_first or None)
            panel.transformations = [
                dashboard.DataTransformerConfig("merge", options={}),
                dashboard.DataTransformerConfig("organize", options=self._organized(shown)),
            ]
        return panel

    def _target(self, query: Query) -> prometheus.Dataquery:
        now = self.kind in ("stat", "table")
        return prometheus.Dataquery(
            ref_id=query.reference,
            datasource=DATASOURCE,
            editor_mode=prometheus.QueryEditorMode.CODE,
            expr=spelled(query.expression, self.row if len(self.queries) > 1 else ()),
            legend_format="__auto" if self.row or not query.name else query.name,
            instant=now,
            range_val=not now,
            format_val=prometheus.PromQueryFormat.TABLE if self.row else prometheus.PromQueryFormat.TIME_SERIES,
        )

    def _overrides(self, place: Place) -> Iterator[dashboard.DashboardFieldConfigSourceOverrides]:
        """Set looks, units and links. A label of a row leads to its board, unless it is chosen on this one."""
        for query in self.queries:
            matcher = ("byName", query.name) if self.row else ("byFrameRefID", query.reference)
            if query.properties:
                yield _override(*matcher, query.properties)
        for to in reversed(PLACES):
            subject = to.fixed[-1]
            if subject in self.row and subject not in place.fixed:
                yield _override("byName", subject, _link(to, place.address(to, self.row, "__data.fields")))
        for query in self.queries:
            if query.to:
                address = place.address(query.to, re.findall(r"{{(\w+)}}", query.name), "__field.labels")
                yield _override("byFrameRefID", query.reference, _link(query.to, address))

    def _organized(self, shown: list[str]) -> dict[str, object]:
        """Name and order the columns: first the labels of a row, then the values."""
        values = {f"Value #{query.reference}": query.name for query in self.queries}
        if len(values) == 1:
            values["Value"] = self.queries[0].name  # so Grafana calls the value of a panel with one query
        return {
            "excludeByName": {"Time": True, **{value: True for value, name in values.items() if name not in shown}},
            "indexByName": {name: position for position, name in enumerate((*self.row, *values))},
            "renameByName": {value: name for value, name in values.items() if name in shown},
        }


@dataclass(frozen=True, slots=True)
class Row:
    """A heading; with `repeat` it and what follows are there once for each chosen value of that variable."""

    title: str
    repeat: str | None = None

    def model(self, _: Place) -> dashboard.RowPanel:
        """Return the heading as Grafana loads it."""
        return dashboard.RowPanel(title=self.title, grid_pos=dashboard.GridPos(1, WIDTH), repeat=self.repeat)


def _link(to: Place, address: str) -> Properties:
    return {"links": [{"title": to.title, "url": f"{address}&${{__url_time_range}}", "targetBlank": False}]}


def _override(matcher: str, of: str, properties: Properties) -> dashboard.DashboardFieldConfigSourceOverrides:
    values = [dashboard.DynamicConfigValue(name, value) for name, value in properties.items()]
    return dashboard.DashboardFieldConfigSourceOverrides(None, dashboard.MatcherConfig(matcher, of), values)
