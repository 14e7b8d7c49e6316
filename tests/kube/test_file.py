"""Promises of exporter/kube/file.py: names from a file."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from exporter.kube import NoNames
from exporter.kube.file import MOST, FileInventory
from exporter.model import ContainerKind, Inventory, PodUid

ENTRY = {"namespace": "team", "pod": "train-0", "pod_uid": "u-1", "container": "main", "container_id": "a" * 64}


def write(file: Path, content: object) -> None:
    """Replace the file in one step, as an operator's tool does."""
    fresh = file.with_suffix(".new")
    fresh.write_text(content if isinstance(content, str) else json.dumps(content))
    fresh.replace(file)


@contextmanager
def restored(file: Path) -> Iterator[None]:
    """Give the file its time stamp back."""
    stat = file.stat()
    yield
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_each_entry_names_a_container(tmp_path: Path) -> None:
    """YAML or JSON; pods are found by UID, containers by id."""
    file = tmp_path / "names"
    write(file, f"- {{namespace: team, pod: train-0, pod_uid: u-1, container: main, container_id: {'a' * 64}}}\n")
    found = FileInventory(file).inventory()
    assert found.known and found.live and found.faults == ()
    assert [(pod.namespace, pod.name) for pod in found.pods.values()] == [("team", "train-0")]
    assert [(c.pod_uid, c.name, c.id) for c in found.containers] == [("u-1", "main", "a" * 64)]


def test_what_a_policy_asks_for_may_be_in_the_file(tmp_path: Path) -> None:
    """Facts of container, pod and namespace; without its labels a namespace is unknown, which is not without labels."""
    file = tmp_path / "names"
    more = {
        "priority": 7,
        "labels": {"a": "b"},
        "annotations": {"c": "d"},
        "controller_kind": "Job",
        "phase": "Running",
    }
    pod = {"pod": "x", "pod_uid": "u-2", "namespace_labels": {"gpusteward.io/mode": "enforce"}}
    write(file, [ENTRY, ENTRY | more | pod | {"namespace": "other", "kind": "sidecar", "grace_seconds": 5}])
    found = FileInventory(file).inventory()
    told, silent = found.pods[PodUid("u-2")], found.pods[PodUid("u-1")]
    assert (told.priority, told.labels, told.annotations) == (7, {"a": "b"}, {"c": "d"})
    assert (told.controller_kind, told.phase, told.grace_seconds) == ("Job", "Running", 5.0)
    assert (silent.priority, silent.labels, silent.controller_kind, silent.phase) == (None, {}, "", "")
    assert [c.kind for c in found.containers] == [ContainerKind.REGULAR, ContainerKind.SIDECAR]
    assert found.namespaces == {"other": {"gpusteward.io/mode": "enforce"}}


def test_a_broken_file_takes_consent_back(tmp_path: Path) -> None:
    """Names stay while the file is broken. The consent of its namespaces is unknown until the file is fixed."""
    file = tmp_path / "names"
    write(file, [ENTRY | {"namespace_labels": {"gpusteward.io/mode": "enforce"}}])
    source = FileInventory(file)
    assert source.inventory().namespaces
    write(file, "{")
    found = source.inventory()
    assert (list(found.pods), found.namespaces, found.live) == (["u-1"], {}, False)


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
        ("[", "names:1:2"),
        ("- {namespace: 2025-13-45}", "names:1:15: expected a value of the kind timestamp"),
        ("- {namespace: !!int 'x'}", "names:1:15"),
        ("- {namespace: !!bool ''}", "names:1:15"),
        ("- &a [*a]", "names:1:3: an anchor"),
        ("[" * 200_000, "nested too deeply"),
        ('- {namespace: "\\ud800"}', "names:1:"),
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


@pytest.mark.parametrize("inplace", ["pipe", "large"])
def test_what_is_no_names_file_is_not_read(tmp_path: Path, inplace: str) -> None:
    """A pipe would be waited for without end, a disk image read into memory: both are refused, the names stay."""
    file = tmp_path / "names"
    write(file, [ENTRY])
    source = FileInventory(file)
    source.inventory()
    file.unlink()
    if inplace == "pipe":
        os.mkfifo(file)
    else:
        with file.open("wb") as sparse:
            sparse.truncate(MOST + 1)
    found: list[Inventory] = []
    reader = threading.Thread(target=lambda: found.append(source.inventory()), daemon=True)
    reader.start()
    reader.join(10)
    assert [(each.known, each.live, each.faults[0].reason) for each in found] == [(True, False, "names_unreadable")]


def test_a_broken_file_is_read_once(tmp_path: Path) -> None:
    """A broken file of some megabytes costs a second when it changes, and not in each round."""
    file = tmp_path / "names"
    write(file, "[[")
    source = FileInventory(file)
    first = source.inventory()
    with restored(file):
        file.write_text("[]")  # a good text under the same time stamp, size and inode: a second reading would take it
    assert source.inventory().faults == first.faults != ()


def test_a_file_that_was_never_good_makes_rounds_incomplete(tmp_path: Path) -> None:
    """A configured file without any names so far is reported as a fault, and the round is incomplete."""
    found = FileInventory(tmp_path / "missing").inventory()
    assert (found.known, found.faults[0].reason, found.faults[0].incomplete) == (False, "names_unreadable", True)


def test_nobody_asked_for_names_is_no_failure() -> None:
    """Without a source no pod has a name. That is reported, and the round is complete."""
    found = NoNames().inventory(())
    assert (found.known, [fault.incomplete for fault in found.faults]) == (False, [False])
