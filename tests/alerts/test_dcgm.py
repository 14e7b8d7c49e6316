"""The recording rules under the names of dcgm-exporter: judged by promtool, documented both ways."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
import yaml

import plain_yaml
from alerts.written import ROOT, metrics, selectors
from alerts.written import golden_series as fed
from golden import mixed
from prometheus.scraping import program

FOLDER = ROOT / "alerts" / "dcgm"
RULES = FOLDER / "rules.yaml"
PAGE = ROOT / "docs" / "dcgm.md"
LABELS = {
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "Hostname", "DCGM_FI_DRIVER_VERSION", "GPU_I_ID",
    "GPU_I_PROFILE", "namespace", "pod", "container",
}  # fmt: skip
"""Those of dcgm-exporter 4.5.3-4.8.2, internal/pkg/rendermetrics/render_metrics.go."""
FIELDS = {
    "DCGM_FI_DEV_DEC_UTIL", "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", "DCGM_FI_DEV_ENC_UTIL",
    "DCGM_FI_DEV_FB_FREE", "DCGM_FI_DEV_FB_RESERVED", "DCGM_FI_DEV_FB_TOTAL", "DCGM_FI_DEV_FB_USED",
    "DCGM_FI_DEV_GPU_TEMP", "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_MEM_CLOCK", "DCGM_FI_DEV_MEM_COPY_UTIL",
    "DCGM_FI_DEV_POWER_USAGE", "DCGM_FI_DEV_SM_CLOCK", "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", "DCGM_FI_DEV_XID_ERRORS",
    "DCGM_FI_PROF_SM_ACTIVE",
}  # fmt: skip
"""Copied from its etc/dcp-metrics-included.csv and etc/default-counters.csv: no dashboard asks for a misspelt name."""


JOINED = {"gpusteward_gpu_info", "gpusteward_device_info"}
"""They give labels, no values."""


def recorded() -> dict[str, str]:
    """Each series that is recorded, with its expression."""
    return {
        one["record"]: one["expr"] for group in plain_yaml.load(RULES.read_text())["groups"] for one in group["rules"]
    }


def made_of(expression: str) -> set[str]:
    """The metrics below an expression, through what is recorded."""
    rules = recorded()
    names = {one.name for one in selectors(expression)}
    return {found for name in names for found in (made_of(rules[name]) if name in rules else {name})}


def promtool(*words: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([program("promtool"), *map(str, words)], capture_output=True, text=True, check=False)


@pytest.mark.prometheus
def test_promtool_finds_nothing_wrong() -> None:
    """The rules are valid, and make of their tests' series what those expect."""
    for words in (("check", "rules", RULES), ("test", "rules", FOLDER / "tests.yaml")):
        done = promtool(*words)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.prometheus
def test_on_a_node_that_has_everything_the_memory_adds_up(tmp_path: Path) -> None:
    """
    No match on the golden page is ambiguous, memory adds up to what each device uses, and no label is of ours.

    On a node where another vendor's GPU is GPU 0 too, only NVIDIA's has these series.
    """
    golden = {'gpu="0"': 60, 'gpu="1", GPU_I_ID="0"': 12, 'gpu="2"': 9, 'gpu="4"': 9}
    of_nodes = {f'Hostname="gpu-node-1", {labels}': gib for labels, gib in golden.items()}
    of_nodes[f'Hostname="{mixed.NODE}", gpu="0"'] = 48
    closing = [{"labels": f"{{{labels}}}", "value": gib * 1024} for labels, gib in of_nodes.items()]
    names = [{"labels": f'{{__name__="{name}"}}', "value": 1} for name in sorted(FIELDS)]
    asked = [
        {"expr": "sum by (Hostname, gpu, GPU_I_ID) (DCGM_FI_DEV_FB_USED)", "exp_samples": closing},
        {"expr": 'group by (__name__) ({__name__=~"DCGM_.+"})', "exp_samples": names},
        {
            "expr": f'group without ({", ".join(sorted(LABELS))}) ({{__name__=~"DCGM_.+"}})',
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
    ]
    tests = [
        {"interval": "1m", "input_series": fed(), "promql_expr_test": [{**one, "eval_time": "5m"} for one in asked]}
    ]
    path = tmp_path / "golden.yaml"
    path.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "tests": tests}))
    done = promtool("test", "rules", path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_names_are_those_of_dcgm() -> None:
    """What is recorded for others to ask for is one of DCGM's fields, spelt so; the rest is ours, and says so."""
    assert {name for name in recorded() if name.startswith("DCGM")} == FIELDS
    assert all("gpusteward_dcgm" in name for name in recorded().keys() - FIELDS)


def test_the_rules_ask_for_what_is_exported() -> None:
    """Each metric is on the golden page or recorded before, with the labels that its selector names."""
    known: dict[str, set[str]] = metrics() | {}
    for name, expression in recorded().items():
        for one in selectors(expression):
            assert one.name in known, (name, one.name)
            assert {label for label, *_ in one.matchers} <= known[one.name], name
        known[name] = LABELS


def test_the_page_maps_all_names_both_ways() -> None:
    """Each recorded name has its line, with metrics that its rule is made of."""
    lines = dict(re.findall(r"^\| `(DCGM_\w+)` \| [^|]+ \| ([^|]+) \|", PAGE.read_text(), re.MULTILINE))
    assert lines.keys() == FIELDS
    rules = recorded()
    for name, ours in lines.items():
        assert set(re.findall(r"gpusteward_\w+", ours)) == made_of(rules[name]) - JOINED, name


def test_each_label_has_its_line() -> None:
    """docs/dcgm.md tells each label of the recorded series."""
    told = {
        word
        for line in re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(), re.MULTILINE)
        for word in re.findall(r"`(\w+)`", line)
    }
    assert told >= LABELS
