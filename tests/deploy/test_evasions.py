"""
The admission policies against evasions, as files: valid, for consenting namespaces alone, named where they are needed.

In: deploy/enforcer/evasions, docs/evasions.md, the runbook. Out: nothing. What an API server makes of it is
in tests/cluster/test_evasions.py.
"""

from __future__ import annotations

import json
import re

import pytest

from deploy.chart import DEPLOY, EVICTS_FROM, NEWEST, objects
from deploy.schemas import known_to_kubernetes
from exporter.config.policy import Policy

FOLDER = DEPLOY / "enforcer" / "evasions"
FILES = sorted(FOLDER.glob("*.yaml"), key=str)
ROOT = DEPLOY.parent
PAGES = [ROOT / "docs" / "evasions.md", ROOT / "docs" / "runbooks" / "GPULimitEvaded.md"]
MOST_OF_A_LINE = 160


def names(file: object) -> str:
    return str(file).rpartition("/")[2]


@pytest.mark.parametrize("version", [EVICTS_FROM, NEWEST])
@pytest.mark.parametrize("file", FILES, ids=names)
def test_kubernetes_knows_every_field(file: object, version: str) -> None:
    """Each object is valid for the oldest and the newest Kubernetes that the chart supports."""
    for thing in objects((FOLDER / names(file)).read_text()):
        assert known_to_kubernetes(thing, version)


@pytest.mark.parametrize("file", FILES, ids=names)
def test_only_namespaces_that_consent_are_concerned(file: object) -> None:
    """A policy and its binding, which denies in namespaces with the consent label and nowhere else."""
    policy, binding = objects((FOLDER / names(file)).read_text())
    assert (policy["kind"], binding["kind"]) == ("ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding")
    assert policy["metadata"]["name"] == binding["metadata"]["name"] == binding["spec"]["policyName"]
    assert policy["metadata"]["name"] == f"gpusteward-{names(file).removesuffix('.yaml')}"
    key, _, value = Policy().namespaces.label.partition("=")
    assert binding["spec"]["matchResources"] == {"namespaceSelector": {"matchLabels": {key: value}}}
    assert binding["spec"]["validationActions"] == ["Deny", "Audit"]


@pytest.mark.parametrize("file", FILES, ids=names)
def test_a_denied_user_reads_what_to_do(file: object) -> None:
    """Each message is a sentence with a fix, on lines that a terminal shows."""
    policy, _ = objects((FOLDER / names(file)).read_text())
    for validation in policy["spec"]["validations"]:
        assert re.search(r"; fix: \w", validation["message"]), validation["message"]
        assert validation["message"] == " ".join(validation["message"].split())
        assert validation["reason"] == "Forbidden"
        assert len(validation["message"]) < 2 * MOST_OF_A_LINE


def test_expressions_are_closed() -> None:
    """Brackets and quotes of each expression are balanced; YAML folds nothing into a comment."""
    for file in FILES:
        for expression in re.findall(r'"expression": "((?:[^"\\]|\\.)*)"', json.dumps(objects(file.read_text()))):
            text = re.sub(r"'[^']*'|\"[^\"]*\"", "", json.loads(f'"{expression}"'))
            for opening, closing in ("()", "[]"):
                assert text.count(opening) == text.count(closing), (file.name, expression)
            assert "#" not in text


@pytest.mark.parametrize("page", PAGES, ids=names)
def test_each_policy_is_named_where_an_evasion_is_explained(page: object) -> None:
    """docs/evasions.md and the runbook link each file of the folder, and no other."""
    text = next(one for one in PAGES if one == page).read_text()
    assert set(re.findall(r"evasions/([\w-]+\.yaml)", text)) == {file.name for file in FILES}
