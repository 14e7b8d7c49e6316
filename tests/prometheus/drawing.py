"""
Panels as Grafana's own library draws them: the answers of a real Prometheus go through @grafana/data in Node.

In: a board's JSON, a Prometheus that knows its metrics. Out: columns, series, values, as a person would read them.
Law: one call of Node for many panels, for it takes a second to load; what is drawn is judged by the tests alone.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from cluster.npm import GRAFANA, NODE, packages
from prometheus.backfilled import END, START
from prometheus.expanding import Window, choices, expanded
from prometheus.scraping import Prometheus

WINDOW = Window(START, END, points=24)

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Asked:
    """A panel, and what Prometheus said to each of its queries, by reference."""

    board: str
    panel: Json
    answers: Mapping[str, Sequence[Json]]


@dataclass(frozen=True, slots=True)
class Drawn:
    """
    A panel with what is read in it.

    Attributes:
        fields: columns of a table, or series (and their times): name, refId, labels, type, texts, colors, custom,
            color, links for each row, legend.
        values: of a single stat: title, text, color.
    """

    asked: Asked
    fields: Sequence[Json]
    values: Sequence[Json]


@dataclass(frozen=True, slots=True)
class Answered:
    """What the library knows (ids by kind), how it writes values, and the panels, in the order of the question."""

    known: Mapping[str, Sequence[str]]
    formats: Sequence[str]
    panels: Sequence[Drawn]


def asked(prometheus: Prometheus, board: Json, **chosen: str) -> Iterator[Asked]:
    """Ask each panel's queries, with the choice, of those with what is `chosen`, for which most have an answer."""
    variables = [one for one in board["templating"]["list"] if one["type"] == "query"]
    possible = [one for one in choices(prometheus, board, WINDOW) if chosen.items() <= one.items()]
    for panel in board["panels"]:
        if panel["type"] != "row":
            found = [
                {one["refId"]: _ask(prometheus, panel, one, choice, variables) for one in panel["targets"]}
                for choice in possible
            ]
            yield Asked(board["uid"], panel, max(found, key=lambda answers: sum(map(bool, answers.values()))))


def _ask(
    prometheus: Prometheus, panel: Json, target: Json, choice: Mapping[str, Any], variables: Sequence[Json]
) -> Sequence[Json]:
    step = WINDOW.step(panel.get("interval", ""))
    query = expanded(target["expr"], choice, variables, WINDOW, step)
    if target["instant"]:
        answer = prometheus.get("/api/v1/query", query=query, time=str(END))
    else:
        span = {"start": str(START), "end": str(END), "step": str(step)}
        answer = prometheus.get("/api/v1/query_range", query=query, **span)
    found: Sequence[Json] = answer["result"]
    return found


def drawn(panels: Sequence[Asked], formats: Iterable[tuple[str, float]] = ()) -> Answered:
    """Draw all of them. Raises BuildError where the library cannot be had."""
    question = {
        "formats": [list(one) for one in formats],
        "panels": [{"panel": one.panel, "answers": one.answers} for one in panels],
    }
    done = subprocess.run(
        [NODE, GRAFANA / "draw.cjs"],
        input=json.dumps(question),
        env={**os.environ, "NODE_PATH": str(packages(GRAFANA))},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    return Answered(
        answer["known"],
        answer["formats"],
        [Drawn(one, **found) for one, found in zip(panels, answer["panels"], strict=True)],
    )
