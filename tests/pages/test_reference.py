"""docs/reference is what the code says, and the other pages name nothing that is not in it."""

import re
from pathlib import Path
from typing import Any

import pytest

import plain_yaml
from enforcer.messages.action_texts import EventReason
from exporter.config import Arguments, ConfigError, load
from tools.reference import FOLDER, PAGES, ROOT, api, chart, cli, config, log_lines, written

DOCS = ROOT / "docs"
GENERATED = {FOLDER / name for name in PAGES}
OTHERS = {"policy.strikes", "policy.strike_half_life", "policy.budgets.workload", "kernel.panic"}
"""Keys of 0.1, which pages about the upgrade name, and a setting of the kernel."""
ENDINGS = {"yaml", "md", "lock", "levels", "py", "json"}
"""Names of files."""
HAND_WRITTEN = [page for page in sorted((*DOCS.rglob("*.md"), ROOT / "README.md")) if page not in GENERATED]


def named(pattern: str) -> set[tuple[str, str]]:
    """Find what pages name in code: page, name."""
    return {
        (page.name, name)
        for page in HAND_WRITTEN
        for name in re.findall(rf"`(?:config\.)?({pattern})[`:]", page.read_text(encoding="utf-8"))
    }


def dotted(values: dict[str, Any], before: str = "") -> set[str]:
    """Name each key of nested mappings."""
    return {
        name
        for key, value in values.items()
        for name in ({f"{before}{key}"} | (dotted(value, f"{before}{key}.") if isinstance(value, dict) else set()))
    }


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_written_from_the_code(name: str) -> None:
    """After a change: `make golden`, then read the difference."""
    assert (FOLDER / name).read_text(encoding="utf-8") == written(name)


def test_no_other_file_is_in_the_folder() -> None:
    assert set(FOLDER.iterdir()) == GENERATED


def test_each_name_with_dots_is_a_key_a_value_or_a_log_line() -> None:
    """A reader finds each config key, chart value and log line of a page in the reference."""
    keys, values = {key for key, *_ in config.listed()}, dotted(plain_yaml.load(chart.VALUES.read_text()))
    known = keys | {key.rpartition(".")[0] for key in keys} | values | set(log_lines.MEANINGS) | OTHERS
    known |= {f"config.{key.partition('.')[0]}" for key in keys}
    first = {name.partition(".")[0] for name in known if "." in name}
    found = {(page, name) for page, name in named(r"[a-z]\w*(?:\.[a-z]\w*)+") if name.partition(".")[0] in first}
    assert len(found) > 100
    wrong = {(page, name) for page, name in found if name not in known and name.rpartition(".")[2] not in ENDINGS}
    assert wrong == set()


@pytest.mark.parametrize("key", config.TAKES)
def test_a_range_of_the_page_is_the_one_that_is_enforced(key: str, tmp_path: Path) -> None:
    """What is outside of the stated range is refused, and the message names the key."""
    outside = {"policy.tolerance.ratio": "1.1", "sampling.interval": "61s", "sampling.fast_interval": "10s"}
    value = outside.get(key, "61m" if "0s" in config.TAKES[key] else "relative")
    text = value
    for part in reversed(key.split(".")):
        text = f"{{{part}: {text}}}"
    (tmp_path / "config.yaml").write_text(text)
    from enforcer.runtime.policy_config import impossible

    with pytest.raises(ConfigError, match=re.escape(key.removesuffix(".ratio"))):
        load(Arguments(tmp_path / "config.yaml"), impossible)


def test_each_value_of_the_chart_is_on_its_page_with_its_default() -> None:
    """Every key of values.yaml, and no other."""
    values = plain_yaml.load(chart.VALUES.read_text(encoding="utf-8"))
    for key, default, _ in chart.values():
        value = values
        for part in key.split("."):
            value = value[part]
        if isinstance(value, (str, int, bool)):
            assert plain_yaml.load(f"x: {default}")["x"] == value, key
    assert [key for key, *_ in chart.values() if "." not in key] == list(values)


def test_each_event_that_a_page_names_exists() -> None:
    found = named(r"GPUMemoryLimit[A-Za-z]+")
    assert {name for _, name in found} <= set(EventReason)
    assert len(found) > 3


def test_each_environment_variable_that_is_read_is_on_the_page() -> None:
    """A variable whose name stands in the code beside `environ` is one of cli.md."""
    read = set()
    for folder in ("exporter", "enforcer"):
        for file in (ROOT / folder).rglob("*.py"):
            text = file.read_text(encoding="utf-8")
            read |= set(re.findall(r"environ\.get\(\"([A-Z_]+)\"|\"([A-Z_]+)\" (?:not )?in (?:os\.)?environ", text))
    assert {one or other for one, other in read} <= set(cli.VARIABLES)
    assert read


def test_each_struct_of_a_document_is_on_the_page() -> None:
    """A link to another struct of the page leads to its heading."""
    text = api.page()
    headings = {line.removeprefix("## ").lower() for line in text.splitlines() if line.startswith("## ")}
    assert set(re.findall(r"\(#([a-z]+)\)", text)) <= headings
