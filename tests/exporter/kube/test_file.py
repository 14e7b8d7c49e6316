"""Promises of exporter/kube/file.py: names from a file."""

import json
from pathlib import Path

import pytest

from exporter.kube import NoNames
from exporter.kube.file import FileInventory

ENTRY = {"namespace": "team", "pod": "train-0", "pod_uid": "u-1", "container": "main", "container_id": "a" * 64}


def write(file: Path, content: object) -> None:
    """Replace the file in one step, as an operator's tool does."""
    fresh = file.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else json.dumps(content))
    fresh.replace(file)


def test_each_entry_names_a_container(tmp_path: Path) -> None:
    """YAML or JSON; pods are found by UID, containers by id."""
    file = tmp_path / "names"
    write(file, f"- {{namespace: team, pod: train-0, pod_uid: u-1, container: main, container_id: {'a' * 64}}}\n")
    found = FileInventory(file).inventory()
    assert found.known and found.live and found.faults == ()
    assert [(pod.namespace, pod.name) for pod in found.pods.values()] == [("team", "train-0")]
    assert [(c.pod_uid, c.name, c.id) for c in found.containers] == [("u-1", "main", "a" * 64)]


def test_a_change_is_seen_in_the_next_round(tmp_path: Path) -> None:
    """The file is looked at each time; what did not change is not read again."""
    file = tmp_path / "names"
    write(file, [ENTRY])
    source = FileInventory(file)
    first = source.inventory()
    assert source.inventory() is first
    write(file, [ENTRY, ENTRY | {"container": "sidecar", "container_id": "b" * 64}])
    assert [c.name for c in source.inventory().containers] == ["main", "sidecar"]


@pytest.mark.parametrize(
    ("broken", "expected"),
    [
        ([ENTRY | {"pood": "x"}], "pood"),
        ([{"namespace": "team"}], "pod"),
        ({"not": "a list"}, "array"),
        ([ENTRY | {"pod": 7}], "$[0].pod"),
        ("[", "names"),
    ],
)
def test_a_broken_file_changes_nothing_and_is_told(tmp_path: Path, broken: object, expected: str) -> None:
    """The last good names stay, not live; the fault has file, place and what was expected; the round is complete."""
    file = tmp_path / "names"
    write(file, [ENTRY])
    source = FileInventory(file)
    source.inventory()
    write(file, broken)
    found = source.inventory()
    (fault,) = found.faults
    assert (found.known, found.live, len(found.containers)) == (True, False, 1)
    assert fault.reason == "names_invalid" and not fault.incomplete
    assert str(file) in fault.message and expected in fault.message
    write(file, [ENTRY])
    assert source.inventory().live, "mended"


def test_a_file_that_was_never_good_makes_rounds_incomplete(tmp_path: Path) -> None:
    """Who asked for names and has none yet is told, and is not ready."""
    found = FileInventory(tmp_path / "missing").inventory()
    assert (found.known, found.faults[0].reason, found.faults[0].incomplete) == (False, "names_unreadable", True)


def test_nobody_asked_for_names_is_no_failure() -> None:
    """Without a source nothing can be named; that is told and the round is complete."""
    found = NoNames().inventory(())
    assert (found.known, [fault.incomplete for fault in found.faults]) == (False, [False])
