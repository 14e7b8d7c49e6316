"""Each rule finds what it is for, and spares what is right. All texts go through textlint in one call."""

from __future__ import annotations

import os

import pytest

from cluster.build import BuildError
from prose.linting import MOST_WORDS, lint
from prose.texts import prose

LONG = " ".join(["word"] * (MOST_WORDS + 1))
HALF = " ".join(["word"] * 20)
FINDS = [
    ("sentence-length", f"{LONG}."),
    ("sentence-length", f"A first one. {LONG.capitalize()}, and the last."),
    ("sentence-length", f"- {HALF};\n  {HALF}"),
    ("sentence-length", f"| a | b |\n|---|---|\n| short | {LONG} |"),
    ("sentence-length", f"{HALF} e.g. {HALF}."),
    ("sentence-length", f"{HALF} 1.30 {HALF}."),
    ("subject", "Whoever may write the ConfigMap decides."),
    ("subject", "The memory is used by nobody."),
    ("subject", "A file that **somebody** cut off."),
    ("subject", "Who cannot live with that: use `kill`."),
    ("subject", "It ends; who takes it over could divide the GPUs."),
    ("subject", "| a | b |\n|---|---|\n| short | the pods, and who is over |"),
    ("retired", "The leaf device is unknown."),
    ("retired", "Rungs of the ladder."),
    ("retired", "| a | b |\n|---|---|\n| the standing of a pod | x |"),
    ("retired", "It is told of [a subject](page.md)."),
    ("retired", "The token comes back."),
    ("retired", "It wants the namespace's word."),
    ("spelling", "The growing backoff."),
    ("spelling", "A Gpu without Nvidia's driver."),
    ("spelling", "The daemon set of gpu-steward."),
]
SPARES = [
    ("a list after a colon", f"{HALF}: {HALF}."),
    ("code of many words", f"{HALF} `{LONG}` {HALF[:20]}."),
    ("a list of names in code", f"{HALF[:80]} {', '.join(['`name`'] * 20)} and `last`."),
    ("an address", f"[{HALF}](https://example.com/a-b.c?x=1)."),
    ("a block of code", f"```sh\n{LONG} whoever leaf\n```"),
    ("identifiers in code", "`leaf`, `rung`, `subject`, `Gpu` and `nobody`."),
    ("a person", "A person who closes the breaker, the admin who may label namespaces."),
    ("a question", "Who uses the GPU?"),
    ("a heading", "# Who shares a device"),
    ("told apart", "Both are told apart by their UUID."),
    ("a token of the API", "The token of the ServiceAccount is rotated."),
    ("a word in a text", "The word stands beside it."),
    ("names with hyphens and dots", "A dry-run, leaf-node.yaml and rung.py and a/leaf/b."),
    ("links to tests", f"[{LONG} leaf](../tests/policy/test_rules.py)"),
    ("a comment of HTML", f"<!-- {LONG} leaf -->"),
]


@pytest.fixture(scope="module")
def found() -> dict[str, set[str]]:
    """Which rules found something in each text."""
    texts = {text: prose(f"{number}.md", text) for number, text in enumerate([one for _, one in FINDS + SPARES])}
    try:
        findings = lint(texts.values())
    except BuildError as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(f"npm brings textlint: {error}")
    return {text: {one.rule for one in findings if one.path == page.path} for text, page in texts.items()}


@pytest.mark.parametrize(("rule", "text"), FINDS)
def test_a_rule_finds_what_it_is_for(rule: str, text: str, found: dict[str, set[str]]) -> None:
    """And no other rule does."""
    assert found[text] == {rule}


@pytest.mark.parametrize(("what", "text"), SPARES, ids=[what for what, _ in SPARES])
def test_what_is_right_is_spared(what: str, text: str, found: dict[str, set[str]]) -> None:
    """A rule that finds what is right would be ignored."""
    assert found[text] == set(), what
