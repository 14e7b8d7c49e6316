"""
The boards as places to go to: their names, their variables, and what a link takes along.

In: nothing. Out: the five places, variables as Grafana's JSON, addresses. Law: a variable's values come from our own
metrics, narrowed by the variables before it; what was chosen is kept on the way to another board wherever that board
can show it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from grafana import expressions as e

DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


@dataclass(frozen=True, slots=True)
class Variable:
    """
    One choice on top of a board: a label of our series.

    Attributes:
        label: the label, which is the variable's name, too.
        title: as people read it.
        source: the family that knows all its values; with `text` an expression, narrowed at `<daemon>`.
        many: whether several values, and all of them, can be chosen.
        text: the label that people read in the menu, where it is another one.
    """

    label: str
    title: str
    source: str
    many: bool = False
    text: str = ""

    @property
    def matcher(self) -> str:
        """
        The selector's part. A single value is compared as it is: Grafana escapes it for no regular expression.

        An empty cluster (nobody sets that label) matches the series that have none.
        """
        return f'{self.label}{"=~" if self.many else "="}"${self.label}"'

    def document(self, before: Iterable[Variable]) -> dict[str, Any]:
        """Return Grafana's JSON; `before` are the variables that narrow it."""
        where = ", ".join(one.matcher for one in before)
        if self.text:
            query = f"query_result({self.source.replace('<daemon>', where)})"
            # A series is written as Prometheus sends it, its labels in the order of the alphabet.
            read = {"regex": f'/{self.text}="(?<text>[^"]*)".*{self.label}="(?<value>[^"]*)"/'}
        else:
            query = f"label_values({self.source}{f'{{{where}}}' if where else ''}, {self.label})"
            read = {}
        return {
            "name": self.label,
            "label": self.title,
            "type": "query",
            "datasource": DATASOURCE,
            "definition": query,
            "query": {"qryType": 3 if self.text else 1, "query": query, "refId": self.label},
            **read,
            "refresh": 2,  # when the time range changes: pods come and go
            "sort": 3 if self.text else 1,  # by number, or by the alphabet
            "multi": self.many,
            "includeAll": self.many,
            **({"allValue": ".*", "current": {"text": ["All"], "value": ["$__all"]}} if self.many else {}),
            "hide": 0,
        }


CLUSTER_LABEL = Variable("cluster", "Cluster", "gpusteward_build_info")
NODES = Variable("node", "Node", "gpusteward_build_info", many=True)
ONE_NODE = Variable("node", "Node", "gpusteward_build_info")
GPUS = Variable("uuid", "GPU", e.GPUS_TO_CHOOSE, many=True, text="gpu")
NAMESPACES = Variable("namespace", "Namespace", "gpusteward_pod_info", many=True)
ONE_NAMESPACE = Variable("namespace", "Namespace", "gpusteward_pod_info")
ONE_POD = Variable("pod", "Pod", "gpusteward_pod_info")


@dataclass(frozen=True, slots=True)
class Place:
    """
    A board that can be gone to.

    `uid` is a promise: bookmarks and alerts point there. `variables` are in the order in which they narrow one another.
    """

    uid: str
    title: str
    variables: tuple[Variable, ...]

    def selector(self, *labels: str) -> str:
        """Match what is chosen here, of these labels."""
        return ", ".join(one.matcher for one in self.variables if one.label in labels)

    def address(self, to: Place, row: Iterable[str] = (), of: str = "__data.fields") -> str:
        """
        Return the address of another board, with what is chosen here and, in a table, with the row's labels.

        In a graph they are those `of` the series: `__field.labels`.
        Of a choice that may be of several the other board can show only as much as it lets choose: "All" as the one
        value of a node would match nothing.
        """
        here, fields = {one.label: one for one in self.variables}, set(row)
        kept = ["${datasource:queryparam}"]
        for one in to.variables:
            if one.label in fields:
                kept.append(f"var-{one.label}=${{{of}.{one.label}}}")
            elif one.label in here and (one.many or not here[one.label].many):
                kept.append(f"${{{one.label}:queryparam}}")
        return f"/d/{to.uid}?{'&'.join(kept)}"


CLUSTER = Place("gpusteward-cluster", "gpusteward / Cluster", (CLUSTER_LABEL, NODES))
NODE = Place("gpusteward-node", "gpusteward / Node and GPUs", (CLUSTER_LABEL, ONE_NODE, GPUS))
NAMESPACE = Place("gpusteward-namespace", "gpusteward / Namespace", (CLUSTER_LABEL, NODES, ONE_NAMESPACE))
POD = Place("gpusteward-pod", "gpusteward / Pod", (CLUSTER_LABEL, NODES, ONE_NAMESPACE, ONE_POD))
ENFORCEMENT = Place("gpusteward-enforcement", "gpusteward / Enforcement and health", (CLUSTER_LABEL, NODES, NAMESPACES))

PLACES = (CLUSTER, NODE, NAMESPACE, POD, ENFORCEMENT)
