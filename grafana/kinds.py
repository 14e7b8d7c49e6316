"""
The kinds of panels, and how values look in them.

What comes in: a title, a unit, colours. What goes out: panels, still without their description and queries.

The rule: usage is solid, a declared limit is dashed red, the capacity is dashed grey, and unattributed memory is grey.
"""

from collections.abc import Mapping

from grafana_foundation_sdk.models import common, dashboard, heatmap, statetimeline, timeseries
from grafana_foundation_sdk.models import stat as big_value

from grafana.panels import WIDTH, Panel, Properties, Steps

# The least width of a bar. `$__rate_interval` is the step and a scrape, and at least four scrapes: in bars of 15 s each
# action would be counted four times.
STEP = "5m"
POINTS = 300  # of 1,000 nodes and 4,000 containers over 24 hours, so that a graph takes less than a second


def _colored(color: str) -> Properties:
    return {"color": {"mode": "fixed", "fixedColor": color}}


def _line(color: str, *dash: int) -> Properties:
    return {
        **_colored(color),
        "custom.lineStyle": {"fill": "dash", "dash": dash} if dash else {"fill": "solid"},
        "custom.stacking": {"mode": "none", "group": "A"},
        "custom.fillOpacity": 0,
        "custom.lineWidth": 2,
    }


LIMIT = _line("red", 10, 10)
CAPACITY = _line("#8e8e8e", 20, 6)
PEAK = _line("orange", 2, 6)
WHOLE = _line("text")
UNEXPLAINED = _colored("#6e6e6e")


def _steps(base: str, **above: float) -> Steps:
    steps = [dashboard.Threshold(color=base), *(dashboard.Threshold(at, color) for color, at in above.items())]
    return Steps(dashboard.ThresholdsMode.ABSOLUTE, steps)


NEUTRAL = _steps("text")
ALARM = _steps("green", red=1)  # of what should not be there at all
PENDING = _steps("green", orange=1)  # of what a person has to finish
FULL = _steps("green", orange=0.9, red=1)  # of a ratio
STALE = _steps("green", orange=15, red=60)  # of an age in seconds; after 15 s, by default, series are withdrawn


def stat(title: str, unit: str = "short", steps: Steps = NEUTRAL, *, width: int = 4, named: bool = False) -> Panel:
    """Show the present value, large; `named`: with its legend."""
    color = dashboard.FieldColor(dashboard.FieldColorModeId.THRESHOLDS)
    options = big_value.Options(
        graph_mode=common.BigValueGraphMode.NONE,
        text_mode=common.BigValueTextMode.VALUE_AND_NAME if named else common.BigValueTextMode.AUTO,
        reduce_options=common.ReduceDataOptions(values=False, calcs=["lastNotNull"], fields=""),
    )
    fields = dashboard.FieldConfig(unit=unit, thresholds=steps, color=color, no_value="none known")
    return Panel("stat", title, (4, width), fields, options)


def lines(
    title: str,
    unit: str = "short",
    *,
    stacked: bool = False,
    top: float | None = None,
    width: int = 12,
    height: int = 8,
) -> Panel:
    """Show the course of values over time. `top`: where the axis ends, for ratios."""
    stacking = common.StackingMode.NORMAL if stacked else common.StackingMode.NONE
    custom = _drawn(common.GraphDrawStyle.LINE, 30 if stacked else 10, stacking)
    legend = common.VizLegendOptions(common.LegendDisplayMode.TABLE, show_legend=True, calcs=["lastNotNull", "max"])
    legend.placement = common.LegendPlacement.RIGHT if width > WIDTH // 2 else common.LegendPlacement.BOTTOM
    tooltip = common.VizTooltipOptions(common.TooltipDisplayMode.MULTI, common.SortOrder.DESCENDING)
    fields = dashboard.FieldConfig(unit=unit, min_val=0, max_val=top, custom=custom)
    return Panel("timeseries", title, (height, width), fields, timeseries.Options(None, legend, tooltip))


def bars(title: str, unit: str = "short", *, width: int = 12) -> Panel:
    """Show counts in each step, stacked."""
    panel = lines(title, unit, stacked=True, width=width)
    panel.interval = STEP
    panel.fields.custom = _drawn(common.GraphDrawStyle.BARS, 60, common.StackingMode.NORMAL)
    return panel


def _drawn(style: common.GraphDrawStyle, fill: int, stacking: common.StackingMode) -> common.GraphFieldConfig:
    stacks, points = common.StackingConfig(stacking, "A"), common.VisibilityMode.NEVER
    return common.GraphFieldConfig(style, fill_opacity=fill, show_points=points, stacking=stacks)


def heat_map(title: str) -> Panel:
    """Show the numbers of each series as colours over time: one row for each series, in the order of their names."""
    color = heatmap.HeatmapColorOptions(heatmap.HeatmapColorMode.SCHEME, "Greens", "dark-green", exponent=0.5, steps=32)
    tooltip = heatmap.HeatmapTooltip(common.TooltipDisplayMode.SINGLE, y_histogram=False, show_color_scale=True)
    options = heatmap.Options(
        color=color,
        rows_frame=heatmap.RowsHeatmapOptions(layout=common.HeatmapCellLayout.AUTO),
        y_axis=heatmap.YAxisConfig(axis_placement=common.AxisPlacement.LEFT),
        legend=heatmap.HeatmapLegend(show=True),
        tooltip=tooltip,
        exemplars=heatmap.ExemplarConfig("rgba(255,0,255,0.7)"),
    )
    fields = dashboard.FieldConfig(unit="short", custom=heatmap.FieldConfig())
    return Panel("heatmap", title, (8, 12), fields, options).every(STEP)


def timeline(title: str, words: Mapping[int, tuple[str, str]]) -> Panel:
    """Show the state of each series over time; `words` are the word and the colour of each value."""
    mapped = {str(value): dashboard.ValueMappingResult(*word, None, value) for value, word in words.items()}
    custom = statetimeline.FieldConfig(line_width=0, fill_opacity=70)
    fields = dashboard.FieldConfig(
        unit="none", mappings=[dashboard.ValueMap(mapped)], thresholds=NEUTRAL, custom=custom
    )
    options = statetimeline.Options(
        row_height=0.8,
        legend=common.VizLegendOptions(show_legend=True),
        tooltip=common.VizTooltipOptions(sort=common.SortOrder.NONE),
    )
    return Panel("state-timeline", title, (8, 12), fields, options)


def table(title: str, row: str, *, width: int = 24, height: int = 8) -> Panel:
    """
    Show the present values: one row for each set of the labels of `row`, with the columns' values.

    The first column with a unit sorts the table, largest first.
    """
    custom = common.TableFieldOptions(align=common.FieldTextAlignment.AUTO, filterable=True)
    fields = dashboard.FieldConfig(unit="short", thresholds=NEUTRAL, custom=custom)
    return Panel("table", title, (height, width), fields, row=tuple(row.split(", ")))
