"""The recording rules under both generations of dcgm-exporter's names: judged by promtool, documented both ways."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

import plain_yaml
from alerts.written import ROOT, metrics, selectors
from alerts.written import golden_series as fed
from golden import mixed
from prometheus.scraping import program

FOLDER = ROOT / "alerts" / "dcgm"
OLDER, NEWER = FOLDER / "rules.yaml", FOLDER / "rules-4.9.yaml"
RULES = (OLDER, NEWER)
PAGE = ROOT / "docs" / "dcgm.md"
CSV = Path(__file__).parent / "fixtures" / "dcgm-exporter-4.5.3-4.8.2.txt"
SAME = {
    "gpu", "UUID", "pci_bus_id", "device", "modelName", "GPU_I_ID", "GPU_I_PROFILE", "namespace", "pod", "container",
}  # fmt: skip
LABELS = {
    OLDER: SAME | {"Hostname", "hostname", "DCGM_FI_DRIVER_VERSION"},
    NEWER: SAME | {"hostname", "DCGM_FI_SYSTEM_DRIVER_VERSION"},
}
"""
Those of dcgm-exporter 4.5.3-4.8.2, internal/pkg/rendermetrics/render_metrics.go; Hostname was renamed by its #655 in
4.8.3, the driver's version in 4.9.0 (release notes). The older file serves both names of the host.
"""
FIELDS = {
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_CORRECTABLE_TOTAL", 1),
    "DCGM_FI_DEV_DEC_UTIL": ("DCGM_FI_DEV_DEC_UTIL_RATIO", 0.01),
    "DCGM_FI_DEV_ECC_DBE_VOL_TOTAL": ("DCGM_FI_DEV_ECC_DBE_VOL_TOTAL", 1),
    "DCGM_FI_DEV_ECC_SBE_VOL_TOTAL": ("DCGM_FI_DEV_ECC_SBE_VOL_TOTAL", 1),
    "DCGM_FI_DEV_ENC_UTIL": ("DCGM_FI_DEV_ENC_UTIL_RATIO", 0.01),
    "DCGM_FI_DEV_FB_FREE": ("DCGM_FI_DEV_FB_FREE_BYTES", 2**20),
    "DCGM_FI_DEV_FB_RESERVED": ("DCGM_FI_DEV_FB_RESERVED_BYTES", 2**20),
    "DCGM_FI_DEV_FB_TOTAL": ("DCGM_FI_DEV_FB_CAPACITY_BYTES", 2**20),
    "DCGM_FI_DEV_FB_USED": ("DCGM_FI_DEV_FB_USED_BYTES", 2**20),
    "DCGM_FI_DEV_GPU_TEMP": ("DCGM_FI_DEV_GPU_TEMP_CELSIUS", 1),
    "DCGM_FI_DEV_GPU_UTIL": ("DCGM_FI_DEV_GPU_UTIL_RATIO", 0.01),
    "DCGM_FI_DEV_MEMORY_TEMP": ("DCGM_FI_DEV_MEMORY_TEMP_CELSIUS", 1),
    "DCGM_FI_DEV_MEM_CLOCK": ("DCGM_FI_DEV_MEMORY_CLOCK_HERTZ", 1e6),
    "DCGM_FI_DEV_MEM_COPY_UTIL": ("DCGM_FI_DEV_MEMORY_UTIL_RATIO", 0.01),
    "DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_COUNT_TOTAL": ("DCGM_FI_DEV_NVLINK_CRC_DATA_ERROR_TOTAL", 1),
    "DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_COUNT_TOTAL": ("DCGM_FI_DEV_NVLINK_CRC_FLIT_ERROR_TOTAL", 1),
    "DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_COUNT_TOTAL": ("DCGM_FI_DEV_NVLINK_RECOVERY_ERROR_TOTAL", 1),
    "DCGM_FI_DEV_NVLINK_REPLAY_ERROR_COUNT_TOTAL": ("DCGM_FI_DEV_NVLINK_REPLAY_ERROR_TOTAL", 1),
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": ("DCGM_FI_DEV_PCIE_REPLAY_TOTAL", 1),
    "DCGM_FI_DEV_POWER_USAGE": ("DCGM_FI_DEV_BOARD_POWER_WATTS", 1),
    "DCGM_FI_DEV_RETIRED_DBE": ("DCGM_FI_DEV_PAGE_RETIRED_DBE_TOTAL", 1),
    "DCGM_FI_DEV_RETIRED_PENDING": ("DCGM_FI_DEV_PAGE_RETIRED_PENDING", 1),
    "DCGM_FI_DEV_RETIRED_SBE": ("DCGM_FI_DEV_PAGE_RETIRED_SBE_TOTAL", 1),
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": ("DCGM_FI_DEV_ROW_REMAP_FAILED", 1),
    "DCGM_FI_DEV_ROW_REMAP_PENDING": ("DCGM_FI_DEV_ROW_REMAP_PENDING", 1),
    "DCGM_FI_DEV_SM_CLOCK": ("DCGM_FI_DEV_SM_CLOCK_HERTZ", 1e6),
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": ("DCGM_FI_DEV_GPU_ENERGY_JOULES_TOTAL", 0.001),
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": ("DCGM_FI_DEV_ROW_REMAP_UNCORRECTABLE_TOTAL", 1),
    "DCGM_FI_DEV_XID_ERRORS": ("DCGM_FI_DEV_XID_ERROR", 1),
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": ("DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO", 1),
    "DCGM_FI_PROF_SM_ACTIVE": ("DCGM_FI_PROF_SM_UTIL_RATIO", 1),
}
"""
Name up to dcgm-exporter 4.8 -> name from 4.9 on, and the factor of a value. No dashboard asks for a misspelt name.

The former are from its etc/dcp-metrics-included.csv and etc/default-counters.csv. The latter are aliases in
dcgmlib/dcgm_fields.h of DCGM 4.6.0. Where the unit changed, they are fields 1600 to 1650 of DCGM 4.7 (docs/dcgm.md).
"""
NAMES = {OLDER: set(FIELDS), NEWER: {newer for newer, _ in FIELDS.values()}}


JOINED = {"gpusteward_gpu_info", "gpusteward_device_info"}
"""They give labels, no values."""


def recorded(path: Path) -> dict[str, str]:
    """Each series that a file records, with its expression."""
    return {
        one["record"]: one["expr"] for group in plain_yaml.load(path.read_text())["groups"] for one in group["rules"]
    }


def made_of(expression: str, rules: dict[str, str]) -> set[str]:
    """The metrics below an expression, through what is recorded."""
    names = {one.name for one in selectors(expression)}
    return {found for name in names for found in (made_of(rules[name], rules) if name in rules else {name})}


def promtool(*words: object) -> None:
    done = subprocess.run([program("promtool"), *map(str, words)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def on_the_golden_page(folder: Path, rules: list[Path], asked: list[dict[str, Any]]) -> None:
    """Have promtool ask the rules of the golden page."""
    tests = [
        {"interval": "1m", "input_series": fed(), "promql_expr_test": [{**one, "eval_time": "5m"} for one in asked]}
    ]
    path = folder / "golden.yaml"
    path.write_text(yaml.safe_dump({"rule_files": list(map(str, rules)), "tests": tests}))
    promtool("test", "rules", path)


@pytest.mark.prometheus
def test_promtool_finds_nothing_wrong() -> None:
    """The rules are valid, and make of their tests' series what those expect."""
    promtool("check", "rules", *RULES)
    promtool("test", "rules", FOLDER / "tests.yaml", FOLDER / "tests-4.9.yaml")


@pytest.mark.prometheus
@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_on_a_node_that_has_everything_the_memory_adds_up(path: Path, tmp_path: Path) -> None:
    """
    No match on the golden page is ambiguous, memory adds up to what each device uses, and no label is of ours.

    On a node where another vendor's GPU is GPU 0 too, only NVIDIA's has these series.
    """
    host = "Hostname" if path is OLDER else "hostname"
    used, unit = ("DCGM_FI_DEV_FB_USED", 2**10) if path is OLDER else ("DCGM_FI_DEV_FB_USED_BYTES", 2**30)
    golden = {'gpu="0"': 60, 'gpu="1", GPU_I_ID="0"': 12, 'gpu="2"': 9, 'gpu="4"': 9}
    of_nodes = {f'{host}="gpu-node-1", {labels}': gib for labels, gib in golden.items()}
    of_nodes[f'{host}="{mixed.NODE}", gpu="0"'] = 48
    closing = [{"labels": f"{{{labels}}}", "value": gib * unit} for labels, gib in of_nodes.items()]
    names = [{"labels": f'{{__name__="{name}"}}', "value": 1} for name in sorted(NAMES[path])]
    asked: list[dict[str, Any]] = [
        {"expr": f"sum by ({host}, gpu, GPU_I_ID) ({used})", "exp_samples": closing},
        {"expr": 'group by (__name__) ({__name__=~"DCGM_.+"})', "exp_samples": names},
        {
            "expr": f'group without ({", ".join(sorted(LABELS[path]))}) ({{__name__=~"DCGM_.+"}})',
            "exp_samples": [{"labels": "{}", "value": 1}],
        },
        {"expr": f'{{__name__=~"DCGM_.+", {host}=""}} or {{__name__=~"DCGM_.+", hostname=""}}', "exp_samples": []},
    ]
    on_the_golden_page(tmp_path, [path], asked)


@pytest.mark.prometheus
def test_both_generations_say_the_same(tmp_path: Path) -> None:
    """On the golden page each series of an older name has one of the newer name, with its value in the newer unit."""
    asked = []
    for older, (newer, factor) in FIELDS.items():
        if newer == older:  # both files record it, and differ in labels alone
            continue
        same = f"count(round({newer} - on ({', '.join(sorted(SAME))}) {older} * {factor}, 1e-6) == 0)"
        asked += [
            {"expr": f"{same} - count({one})", "exp_samples": [{"labels": "{}", "value": 0}]} for one in (older, newer)
        ]
    assert len(asked) > 30
    on_the_golden_page(tmp_path, [*RULES], asked)


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_the_names_are_those_of_dcgm(path: Path) -> None:
    """What is recorded for others to ask for is one of DCGM's fields, spelt so; the rest is ours, and says so."""
    assert {name for name in recorded(path) if name.startswith("DCGM")} == NAMES[path]
    assert all("gpusteward_dcgm" in name for name in recorded(path).keys() - NAMES[path])


@pytest.mark.parametrize("path", RULES, ids=lambda path: path.stem)
def test_the_rules_ask_for_what_is_exported(path: Path) -> None:
    """Each metric is on the golden page or recorded before, with the labels that its selector names."""
    known: dict[str, set[str]] = metrics() | {}
    for name, expression in recorded(path).items():
        for one in selectors(expression):
            assert one.name in known, (name, one.name)
            assert {label for label, *_ in one.matchers} <= known[one.name], name
        known[name] = LABELS[path]


def test_the_page_maps_all_names_both_ways() -> None:
    """Each recorded name of both generations has its line, with metrics that its rules are made of."""
    line = r"^\| `(DCGM_\w+)` \| (?:`(DCGM_\w+)`|the same) \| [^|]+ \| ([^|]+) \|"
    lines = {older: (newer, ours) for older, newer, ours in re.findall(line, PAGE.read_text(), re.MULTILINE)}
    assert {older: newer or older for older, (newer, _) in lines.items()} == {
        older: newer for older, (newer, _) in FIELDS.items()
    }
    for older, (newer, ours) in lines.items():
        for path, name in ((OLDER, older), (NEWER, newer or older)):
            rules = recorded(path)
            assert set(re.findall(r"gpusteward_\w+", ours)) == made_of(rules[name], rules) - JOINED, name


def fields_of_csv() -> set[str]:
    """The fields that dcgm-exporter's default CSV names, also those that it has off."""
    lines = [line for line in CSV.read_text().splitlines() if not line.startswith("#")]
    assert {line.split()[1] for line in lines} == {"on", "off"}
    return {line.split()[0] for line in lines}


def without_rule() -> dict[str, tuple[str, str]]:
    """Each field of the page's table of fields without a rule: derived or refused, and how or why."""
    lines = re.findall(r"^\| (`DCGM_[^|]+) \| (derived|refused) \| (.+) \|$", PAGE.read_text(), re.MULTILINE)
    return {name: (kind, why) for names, kind, why in lines for name in re.findall(r"`(DCGM_\w+)`", names)}


def test_each_field_of_the_default_csv_is_mapped_derived_or_refused() -> None:
    """No field of dcgm-exporter's default set is passed over, and each has one answer on the page."""
    labels = {"DCGM_FI_DRIVER_VERSION", "DCGM_FI_DEV_VBIOS_VERSION"}
    answers = [*FIELDS, *labels, *without_rule()]
    assert fields_of_csv() - set(answers) == set()
    assert len(answers) == len(set(answers))
    assert without_rule().keys() <= fields_of_csv()
    assert str(len(fields_of_csv())) in PAGE.read_text()


@pytest.mark.prometheus
def test_what_is_derived_can_be_asked(tmp_path: Path) -> None:
    """Each query of the page is valid, and asks for a metric of the golden page; what is refused names no query."""
    known = metrics()
    queries = []
    for name, (kind, why) in without_rule().items():
        found = [one.replace("\\|", "|") for one in re.findall(r"`(\w+\(gpusteward_[^`]+)`", why)]
        assert len(found) == (1 if kind == "derived" else 0), name
        queries += found
    assert queries and {one.name for query in queries for one in selectors(query)} <= known.keys()
    rules = [{"record": f"asked:{number}", "expr": query} for number, query in enumerate(queries)]
    path = tmp_path / "derived.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "derived", "rules": rules}]}))
    promtool("check", "rules", path)


def test_each_label_has_its_line() -> None:
    """docs/dcgm.md tells each label of the recorded series."""
    told = {
        word
        for line in re.findall(r"^\| (`[^|]+) \|", PAGE.read_text(), re.MULTILINE)
        for word in re.findall(r"`(\w+)`", line)
    }
    assert told >= LABELS[OLDER] | LABELS[NEWER]
