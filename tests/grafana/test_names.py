"""What the boards and their page name is on the golden page of metrics."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from alerts.written import metrics as recorded
from alerts.written import rules
from enforcer.policy.vocabulary import State
from exporter.metrics.labels import WORKLOAD
from golden.everything import golden_page
from grafana import expressions as written
from grafana.catalogue import BOARDS
from grafana.documents import Board, document
from grafana.places import CLUSTER_LABEL, GPUS, NAMESPACES, NODES, ONE_POD, filled
from scraped import families

ROOT = Path(__file__).parents[2]
NAMED = re.compile(r"(?:\w+:)?gpusteward_\w+(?::\w+)?")
ADDED_BY_OTHERS = {"cluster"}
"""Labels that Prometheus adds: external labels, or a relabelling where there are several clusters."""


def golden() -> dict[str, set[str]]:
    """Each series' name, and its labels; those of a workload only where a sample fills them."""
    found: dict[str, set[str]] = defaultdict(set)
    for family in families(golden_page()):
        for sample in family.samples:
            found[sample.name] |= {label for label, value in sample.labels.items() if value or label not in WORKLOAD}
    return dict(found)


def known() -> dict[str, set[str]]:
    """What is exported, and what our rules record of it."""
    return {name: labels - {"job", "instance"} for name, labels in recorded().items()} | golden()


def asked(board: Board) -> list[str]:
    found = document(board)
    queries = [target["expr"] for panel in found["panels"] for target in panel.get("targets", ())]
    queries += [one["expr"] for one in found["annotations"]["list"]]
    return queries + [one["query"]["query"] for one in found["templating"]["list"] if one["type"] == "query"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.place.uid)
def test_each_name_and_label_is_exported(board: Board) -> None:
    """A renamed metric or label breaks this test, and not a board that an engineer needs during an incident."""
    labels = known()
    for query in asked(board):
        named = re.findall(rf"({NAMED.pattern})(?:\{{([^}}]*)\}})?", query)
        assert named and {name for name, _ in named} <= set(labels), query
        for name, matchers in named:
            matched = set(re.findall(r'(\w+)(?:=~|!~|!=|=)"', matchers))
            assert matched <= labels[name] | ADDED_BY_OTHERS, (name, matched - labels[name])
        there = set().union(*(labels[name] for name, _ in named)) | ADDED_BY_OTHERS
        for group in re.findall(r"\b(?:by|on|without|group_left) \(([^)]*)\)", query):
            assert set(group.split(", ")) <= there, (query, group)


def test_each_series_is_narrowed_by_all_labels_that_it_has() -> None:
    """What is chosen on a board narrows a series by each label that it has, and by no other."""
    variables = (CLUSTER_LABEL, NODES, GPUS, NAMESPACES, ONE_POD)
    chosen = {variable.label for variable in variables}
    for name, labels in golden().items():
        matched = set(re.findall(r'(\w+)=~?"', filled(name, variables)))
        assert matched == labels & chosen | ADDED_BY_OTHERS, name


def test_each_metric_is_shown_somewhere() -> None:
    """What is exported can be seen: the families that no board shows are these, for a reason each."""
    recorded_by = {rule.name: rule.expression for rule in rules() if rule.records}
    queries = [query for board in BOARDS for query in asked(board)]
    while more := {recorded_by.pop(name) for query in queries for name in NAMED.findall(query) if name in recorded_by}:
        queries += more
    shown = {name for query in queries for name in NAMED.findall(query)}
    families_of = {re.sub(r"_(bucket|sum|count)$", "", name) for name in golden()}
    assert families_of - {re.sub(r"_bucket$", "", name) for name in shown} == {
        "gpusteward_device_memory_free_bytes",  # total - used - reserved
        "gpusteward_device_memory_attributed_bytes",  # the sum of what is shown by pod
        "gpusteward_device_memory_controller_utilization_ratio",  # for those who tune kernels
        "gpusteward_gpu_power_default_limit_watts",  # a constant: to find GPUs whose limit was lowered
        "gpusteward_container_memory_kernel_limit_bytes",  # where dmem counts: not enabled by default yet
        "gpusteward_container_queue_evicted_seconds_total",  # of AMD alone
        "gpusteward_container_memory_ceiling_bytes",  # alerts compare with it; boards show the limit itself
        "gpusteward_pod_memory_ceiling_bytes",
        "gpusteward_claim_memory_ceiling_bytes",
        "gpusteward_device_encoder_utilization_ratio",  # by container on the pod's board
        "gpusteward_device_decoder_utilization_ratio",
        "gpusteward_device_memory_byte_seconds_total",  # for `gpusteward report`; boards show the gauges
        "gpusteward_device_observed_seconds_total",
        "gpusteward_device_unknown_seconds_total",
    }


def test_each_state_has_its_number() -> None:
    """The timeline of states knows all states of the policy, each once."""
    assert tuple(State) == written.STATES
    (rule,) = (rule for rule in rules() if rule.name == "holder:gpusteward_state:number")
    for number, state in enumerate(State):
        assert f'gpusteward_container_state{{state="{state}"}} * {number}\n' in rule.expression


def test_each_expression_is_used() -> None:
    """No expression is left over from a panel that went."""
    public = {name: value for name, value in vars(written).items() if name.isupper() and isinstance(value, str)}
    sources = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "grafana").glob("*.py"))
    used = set(re.findall(r"\be\.([A-Z_]+)\b", sources)) | set(re.findall(r"\{([A-Z_]+)\}", sources))
    assert set(public) - used == set()


def test_the_page_names_the_boards_and_nothing_that_is_not_there() -> None:
    """docs/dashboards.md has each board with its file, and metrics that exist."""
    page = (ROOT / "docs" / "dashboards.md").read_text(encoding="utf-8")
    for board in BOARDS:
        assert f"{board.place.uid}.json" in page and board.place.title.removeprefix("gpusteward / ") in page
    assert set(NAMED.findall(page)) <= set(known())
    titles = {panel["title"] for board in BOARDS for panel in document(board)["panels"]}
    lines = "".join(line for line in page.splitlines() if ".json` |" in line)
    assert set(re.findall(r"\*\*([^*]+)\*\*", lines)) <= titles
