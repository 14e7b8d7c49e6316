"""
The boards as targets of links: their names, their variables, and the choices that a link keeps.

What comes in: nothing. What goes out: the boards, their variables as Grafana's models, addresses, selectors.

The rule: the values of a variable come from our own metrics, narrowed by the variables before it. A link keeps each
choice that the other board can show.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from grafana_foundation_sdk.models import common, dashboard

from grafana import expressions as e

DATASOURCE = common.DataSourceRef("prometheus", "${datasource}")
# The labels that can be chosen and that a series has, by how the series begins; the first that fits counts.
NARROWED_BY = {
    r"\w+{<node>": {"cluster", "node"},  # written with an expression that is about all GPUs of a node
    "gpusteward_gpu_processes": {"cluster", "node"},  # of the whole node
    "(container|holder):": {"cluster", "node", "uuid", "namespace", "pod"},  # recorded (alerts/)
    "workload:": {"cluster", "namespace"},
    "gpusteward_(gpu|device)_": {"cluster", "node", "uuid"},
    "gpusteward_(container_|pod_memory_|due_seconds)": {"cluster", "node", "uuid", "namespace", "pod"},
    "gpusteward_(pod_info|last_action)": {"cluster", "node", "namespace", "pod"},
    "gpusteward_claim_": {"cluster", "node", "uuid", "namespace"},
    "gpusteward_(actions|action_failures|dry_run_actions|refusals|held)": {"cluster", "node", "namespace"},
    "gpusteward_(warnings_undelivered|namespace_rights_missing)": {"cluster", "node", "namespace"},
    "": {"cluster", "node"},
}


@dataclass(frozen=True, slots=True)
class Variable:
    """
    One choice on top of a board: a label of our series.

    Attributes:
        label: the label, which is the name of the variable, too.
        title: as people read it.
        source: the family that knows all its values; with `text` an expression.
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
        The part of a selector. A single value is compared as it is: Grafana escapes it for no regular expression.

        An empty cluster (the label is not set) matches the series without the label.
        """
        return f'{self.label}{"=~" if self.many else "="}"${self.label}"'

    def model(self, before: tuple[Variable, ...]) -> dashboard.VariableModel:
        """Return the variable as Grafana loads it; `before` are the variables that narrow it."""
        if self.text:
            query = filled(f"query_result({self.source})", before)
            # Prometheus writes the labels of a series in the order of the alphabet.
            regex = f'/{self.text}="(?<text>[^"]*)".*{self.label}="(?<value>[^"]*)"/'
        else:
            query, regex = filled(f"label_values({self.source}, {self.label})", before), None
        sort = dashboard.VariableSort
        return dashboard.VariableModel(
            name=self.label,
            label=self.title,
            datasource=DATASOURCE,
            definition=query,
            query={"qryType": 3 if self.text else 1, "query": query, "refId": self.label},
            regex=regex,
            refresh=dashboard.VariableRefresh.ON_TIME_RANGE_CHANGED,  # pods come and go
            sort=sort.NUMERICAL_ASC if self.text else sort.ALPHABETICAL_ASC,
            multi=self.many,
            include_all=self.many,
            all_value=".*" if self.many else None,
            current=dashboard.VariableOption(text=["All"], value=["$__all"]) if self.many else None,
        )


def filled(expression: str, chosen: tuple[Variable, ...]) -> str:
    """Narrow each series of an expression by what is chosen, as far as the series has these labels."""
    for mark, listed in e.LABELS.items():
        expression = expression.replace(mark, listed)

    def narrowed(series: re.Match[str]) -> str:
        family, own = series.groups(default="")
        labels = next(labels for beginning, labels in NARROWED_BY.items() if re.match(beginning, series[0]))
        matchers = [variable.matcher for variable in chosen if variable.label in labels]
        selector = ", ".join(filter(None, [*matchers, own.removeprefix("<node>")]))
        return f"{family}{{{selector}}}" if selector else family

    return re.sub(r"((?:\w+:)?gpusteward_\w+(?::\w+)?)(?:{(.*?)})?", narrowed, expression)


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
    A board that a link can lead to.

    `uid` is a promise: bookmarks and alerts point there. `variables` are in the order in which they narrow one another.
    """

    uid: str
    title: str
    variables: tuple[Variable, ...]

    @property
    def fixed(self) -> tuple[str, ...]:
        """The labels of which one value is chosen; the board is about the last of them."""
        return tuple(variable.label for variable in self.variables if not variable.many)

    def address(self, to: Place, labels: Iterable[str] = (), of: str = "") -> str:
        """
        Return the address of another board, with what is chosen here and with the labels of what was clicked.

        `of` is where Grafana finds these labels: `__data.fields` in a table, `__field.labels` in a graph. A choice of
        several is not taken to a board that shows one: "All" as the one value of a node would match nothing.
        """
        labels, here = set(labels), {variable.label for variable in self.variables}
        kept = ["${datasource:queryparam}"]
        for variable in to.variables:
            if variable.label in labels:
                kept.append(f"var-{variable.label}=${{{of}.{variable.label}}}")
            elif variable.label in self.fixed or (variable.many and variable.label in here):
                kept.append(f"${{{variable.label}:queryparam}}")
        return f"/d/{to.uid}?{'&'.join(kept)}"


CLUSTER = Place("gpusteward-cluster", "gpusteward / Cluster", (CLUSTER_LABEL, NODES))
NODE = Place("gpusteward-node", "gpusteward / Node and GPUs", (CLUSTER_LABEL, ONE_NODE, GPUS))
NAMESPACE = Place("gpusteward-namespace", "gpusteward / Namespace", (CLUSTER_LABEL, NODES, ONE_NAMESPACE))
POD = Place("gpusteward-pod", "gpusteward / Pod", (CLUSTER_LABEL, NODES, ONE_NAMESPACE, ONE_POD))
EFFICIENCY = Place("gpusteward-efficiency", "gpusteward / Efficiency", (CLUSTER_LABEL, NAMESPACES))
ENFORCEMENT = Place("gpusteward-enforcement", "gpusteward / Enforcement", (CLUSTER_LABEL, NODES, NAMESPACES))
HEALTH = Place("gpusteward-health", "gpusteward / Daemon health", (CLUSTER_LABEL, NODES))

PLACES = (CLUSTER, EFFICIENCY, NODE, NAMESPACE, POD, ENFORCEMENT, HEALTH)
