"""README and docs/: short, linked, found from the index, and right about chart and program."""

import json
import re
from functools import cache
from pathlib import Path

import pytest

import plain_yaml
from deploy.schemas import validate
from documented import over, values_of
from enforcer import cli

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
INDEX, FIRST_HOUR, GLOSSARY = DOCS / "README.md", DOCS / "first-hour.md", DOCS / "glossary.md"
SYSTEMS = (DOCS / "sharing-systems.md", DOCS / "sharing-systems-more.md")
PAGES = (ROOT / "README.md", INDEX, FIRST_HOUR, GLOSSARY, *SYSTEMS, DOCS / "operate.md", DOCS / "actions.md")
"""Pages whose sentences are short, too; tests/prose will take the others."""
BESIDE = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "alerts/README.md")
ALL = sorted((*DOCS.rglob("*.md"), *(ROOT / page for page in BESIDE)))
GENERATED = {"metrics.md", "systems.md", "faults.md"}
MOST_LINES, LONGEST_README = 250, 90
LONGEST, MOST_WORDS = 160, 25
NODE = """
apiVersion: v1
kind: Node
metadata: {name: gpu-1, labels: {nvidia.com/gpu.sharing-strategy: time-slicing, nvidia.com/gpu.replicas: "4"}}
status: {capacity: {nvidia.com/gpu: "4"}}
"""


def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def links(text: str) -> list[str]:
    """What a page links to in this repository, also by references at its end."""
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r"^\[[^\]]+\]: (\S+)$", text, re.MULTILINE)
    return [link for link in found if not link.startswith("http")]


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names by which headings of a page are linked: asked for each link, read once."""
    text = re.sub(r"```.*?```", "", read(page), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return frozenset(re.sub(r"[^\w\- ]", "", one.lower()).replace(" ", "-") for one in headings)


def blocks(page: Path, kind: str) -> list[str]:
    """The code blocks of a kind, as they are written."""
    return re.findall(rf"```{kind}\n(.*?)```", read(page), re.DOTALL)


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_each_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    for link in links(read(page)):
        path, _, heading = link.partition("#")
        target = page.parent / path if path else page
        assert target.exists(), link
        assert not heading or heading in anchors(target), link


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_references_are_defined_and_used(page: Path) -> None:
    text = read(page)
    assert set(re.findall(r"\]\[([^\]]+)\]", text)) == set(re.findall(r"^\[([^\]]+)\]: ", text, re.MULTILINE))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_lines_and_sentences_are_short(page: Path) -> None:
    text = read(page)
    assert [line for line in text.splitlines() if len(line) > LONGEST] == []
    prose = re.sub(r"\[([^\]]*)\][(\[][^)\]]*[)\]]", r"\1", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
    for sentence in re.split(r"(?<=[.:?!])\s+|\n\n|\n- |\n *\d\. |\|", prose):
        assert len(sentence.split()) <= MOST_WORDS, sentence


def test_the_readme_names_the_two_commands() -> None:
    """CI and people start with them."""
    commands = "".join(blocks(ROOT / "README.md", "sh"))
    assert "make demo " in commands
    assert "make test " in commands


@pytest.mark.parametrize("page", ALL, ids=lambda page: str(page.relative_to(ROOT)))
def test_a_page_is_short(page: Path) -> None:
    """At most 250 lines, and the README 90; pages that are written from the code may be longer."""
    if page.name not in GENERATED and page.parent.name != "reference":
        assert len(read(page).splitlines()) <= (LONGEST_README if page == ROOT / "README.md" else MOST_LINES)


def test_the_index_has_each_page() -> None:
    """Also those of docs/reference; the runbooks are found by the alerts."""
    linked = {(INDEX.parent / link.partition("#")[0]).resolve() for link in links(read(INDEX))}
    pages = {page for page in DOCS.rglob("*.md") if page.parent.name != "runbooks"}
    assert pages - {INDEX} <= linked


def test_each_runbook_is_linked_by_an_alert() -> None:
    """An alert's `runbook_url` names the file."""
    alerts = "".join(read(file) for file in (ROOT / "alerts").glob("*.yaml"))
    assert [page.name for page in (DOCS / "runbooks").glob("*.md") if f"runbooks/{page.name}" not in alerts] == []


def test_the_glossary_is_sorted_and_has_one_entry_a_word() -> None:
    words = [line.split("|")[1].strip().lower() for line in read(GLOSSARY).splitlines() if line.startswith("| ")][1:]
    assert words == sorted(set(words))
    assert len(words) > 50


@pytest.mark.parametrize("page", [ROOT / "README.md", FIRST_HOUR, DOCS / "operate.md"], ids=lambda page: page.name)
def test_each_value_that_is_set_is_one_of_the_chart(page: Path) -> None:
    """`--set a.b=c`: the chart has a.b; labels and sections of the config are open."""
    chart = plain_yaml.load(read(ROOT / "deploy" / "charts" / "gpusteward" / "values.yaml"))
    named = re.findall(r"--set '?([\w.]+)=", read(page))
    for name in named:
        value = chart
        for key in name.split("."):
            assert value == {} or key in value, name
            value = value[key] if value else value


@pytest.mark.parametrize("page", [FIRST_HOUR, DOCS / "operate.md"], ids=lambda page: page.name)
def test_each_file_of_values_is_one_of_the_chart(page: Path) -> None:
    """The chart's schema takes what a page writes into values.yaml."""
    chart = ROOT / "deploy" / "charts" / "gpusteward"
    schema = json.loads(read(chart / "values.schema.json"))
    found = [values for _, values in values_of(page)]
    assert found
    for values in found:
        validate(over(plain_yaml.load(read(chart / "values.yaml")), values), schema)


def test_the_limit_of_the_first_hour_is_explained_as_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The manifest and the answer of the page belong together."""
    (manifest,) = [block for block in blocks(FIRST_HOUR, "yaml") if "kind: Deployment" in block]
    (answer,) = [block for block in blocks(FIRST_HOUR, "text") if block.startswith("pod team-a/llm")]
    (tmp_path / "deployment.yaml").write_text(manifest)
    (tmp_path / "node.yaml").write_text(NODE)
    code = cli.main(["explain", "-f", str(tmp_path / "deployment.yaml"), "--node", str(tmp_path / "node.yaml")])
    assert code == 0
    assert capsys.readouterr().out.startswith(answer)
