"""The player itself: what it shows happened in the policy, and a file that says something impossible is refused."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

from enforcer.policy.vocabulary import Reason, State
from systems.book import FOLDER, ProcessRow, SceneRow, expanded, gpu_uuid, mig_uuid, read
from systems.player import Acted, play

SCENE = "pods: [], processes: [], expect: {sharing: [], limits: [], verdicts: []}"


def _scene(name: str, **changes: Any) -> SceneRow:
    return msgspec.structs.replace(read(FOLDER / f"{name}.yaml").scenes[0], **changes)


def _book(folder: Path, text: str) -> Path:
    file = folder / "some.yaml"
    file.write_text(f"system: some\nsources: [here]\nscenes:\n- {{{text}}}\n")
    return file


def test_an_action_is_timed_from_the_moment_at_which_the_processes_began() -> None:
    """15 s until the warning, 120 s of grace, and no hold-off: nothing of the daemon has changed for long."""
    assert play(_scene("hami-nvidia"), "5s").acted == {("trainer", "main"): Acted("evict", 135.0)}


def test_a_process_that_grows_later_is_acted_on_later() -> None:
    scene = _scene("hami-nvidia")
    grown, *others = scene.processes
    grows = msgspec.structs.replace(grown, memory={"0s": "8Gi", "60s": "24Gi"})
    played = play(msgspec.structs.replace(scene, processes=[grows, *others]), "5s")
    assert played.acted == {("trainer", "main"): Acted("evict", 195.0)}


def test_a_namespace_that_does_not_consent_holds_the_action() -> None:
    played = play(_scene("hami-nvidia", namespaces={"team-a": {}}))
    assert not played.acted
    assert played.states["trainer", "main"].state is State.HELD
    assert played.states["trainer", "main"].reason is Reason.NO_CONSENT


def test_the_end_of_a_scene_is_the_same_each_time() -> None:
    """No clock, no random wait and no order of a set decides a verdict."""
    scene = _scene("nvidia-timeslicing")
    first, second = play(scene), play(scene)
    assert (first.acted, first.seconds) == (second.acted, second.seconds)
    assert {key: (one.state, one.reason) for key, one in first.states.items()} == {
        key: (one.state, one.reason) for key, one in second.states.items()
    }


def test_ids_and_uuids_are_written_short() -> None:
    assert list(expanded(["a::{1..3}", "b"])) == ["a::1", "a::2", "a::3", "b"]
    allocation = read(FOLDER / "nvidia-timeslicing.yaml").scenes[0].allocations[0]
    assert allocation.ids == [f"{gpu_uuid(0)}::0"]
    assert mig_uuid(0, 1) != mig_uuid(1, 0)


def test_a_process_holds_nothing_before_it_begins() -> None:
    row = ProcessRow(memory={"10s": "1Gi", "2m": "2Gi"})
    assert [row.held(at) // 2**30 for at in (-1, 9, 10, 119, 120, 900)] == [0, 0, 1, 1, 2, 2]
    assert row.last_change == 120


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SCENE.replace("pods", "pod"), "unknown field"),
        (f"{SCENE}, gpus: [{{memory: 80Gi, size: 1}}]", "unknown field"),
        (SCENE.replace("sharing: []", "sharing: [{gpu: 0}]"), "missing required field `sharing`"),
        (SCENE.replace("verdicts: []", "verdicts: [{pod: a, role: above}]"), "exactly one of acts, held"),
        (SCENE.replace("verdicts: []", "verdicts: [{pod: a, role: hidden, within: true}]"), "hidden"),
        (f"{SCENE}}}\n- {{{SCENE}", "two scenes have the same mode"),
    ],
)
def test_a_file_that_says_something_impossible_is_refused(tmp_path: Path, text: str, why: str) -> None:
    with pytest.raises(ValueError, match=r"^some\.yaml: ") as error:
        read(_book(tmp_path, text))
    assert why in str(error.value)


def test_processes_that_do_not_fit_on_their_device_are_refused() -> None:
    with pytest.raises(ValueError, match="of a device of 80Gi"):
        play(_scene("hami-nvidia", processes=[ProcessRow(pod="trainer", memory="81Gi")]))


def test_two_pods_of_one_name_are_refused() -> None:
    pods = _scene("hami-nvidia").pods
    with pytest.raises(ValueError, match="the same name"):
        play(_scene("hami-nvidia", pods=[*pods, pods[0]]))
