"""
Whose word counts in the last look when the server's answer and the watch tell different things of the victim's pod.

What comes in: a pod that is edited all the time, each edit with its resourceVersion. What goes out: whether it is
called, and what is said of it if not.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace

import pytest

from enforcer.policy.history import Action
from enforcer.policy.last_look import Live, holds
from enforcer.policy.vocabulary import Rung
from enforcer.runtime.executor import LOOKS
from exporter.model import Snapshot
from policy.scenes import BEGIN, GIB, UNHURRIED, Actor, Play, snapshot
from policy.stage import Stage

HOG = Actor("hog-1", used=60 * GIB, limit=40 * GIB)
POOR = Actor("poor-1", used=10 * GIB, limit=40 * GIB)


@dataclass(frozen=True)
class Word:
    """What is told of the pod: a resourceVersion, annotations, and how often its container was restarted."""

    version: str
    annotations: Mapping[str, str]
    generation: int = 0

    def of(self, actor: Actor) -> Actor:
        facts = {**actor.facts, "version": self.version, "annotations": self.annotations}
        return replace(actor, facts=facts, generation=self.generation)


class Editing(Stage):
    """A stage on which each answer of the server's is `told`, and each round after it shows the watch's `known`."""

    def __init__(self, *looks: tuple[Word, Word]) -> None:
        super().__init__(HOG, POOR)
        self.looks = list(looks)
        self.at["heard accepted"] = lambda: self.empty("hog-1")

    async def ask(self, action: Action) -> Live:
        told, known = self.looks.pop(0) if len(self.looks) > 1 else self.looks[0]
        self.live, self.actors[0] = told.of(HOG), known.of(HOG)
        return await super().ask(action)


def beat(version: str, count: int = 0) -> Word:
    """An edit that means nothing."""
    return Word(version, {"beat": str(count)})


async def test_who_edits_his_pod_all_the_time_is_acted_on() -> None:
    """The round comes after the answer, so the watch may know a later edit: what it says is no less true."""
    stage = Editing((beat("99"), beat("101", 1)))
    await stage.play()
    assert stage.script.count("asked") == stage.script.count("acted") == 1
    assert stage.script[-1] == "verified"


async def test_the_watch_has_a_second_look_to_tell_of_an_edit() -> None:
    """Its word of an edit takes some milliseconds: another answer and another round, and then they agree."""
    stage = Editing((beat("101", 1), beat("99")), (beat("101", 1), beat("101", 1)))
    await stage.play()
    assert (stage.script.count("asked"), stage.script.count("acted")) == (2, 1)


@pytest.mark.parametrize(("told", "known"), [("101", "99"), ("100", "100"), ("b", "c"), ("", ""), ("99", "")])
async def test_a_word_that_is_not_later_is_not_believed(told: str, known: str) -> None:
    """The limit may have been read of what is no more; nor is anything later where versions are no numbers."""
    stage = Editing((beat(told, 1), beat(known)))
    await stage.play(160)
    assert stage.script.count("asked") == LOOKS and "acted" not in stage.script
    assert stage.script[-1] == "abandoned declaration_changed"


async def test_what_is_remembered_is_not_later() -> None:
    """While the names are not live the server's answer counts: versions go back where a cluster was restored."""
    stage = Editing((beat("99"), beat("101", 1)))
    stage.at["intended"] = lambda: stage.world.update(live=False)
    await stage.play(160)
    assert stage.script[-1] == "abandoned declaration_changed" and "acted" not in stage.script


@pytest.mark.parametrize(
    ("later", "spared"),
    [
        (Word("101", {"gpusteward.io/exempt": "true"}), "exempt"),
        (Word("101", {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), "third_party"),
        (Word("101", {}, generation=1), "subject_gone"),
    ],
)
async def test_the_later_word_spares_as_the_answer_does(later: Word, spared: str) -> None:
    """What an edit between answer and round says is judged by, not what it replaced."""
    stage = Editing((beat("99"), later))
    stage.labels = {**stage.labels, "gpusteward.io/allow-pod-exemption": "true"}
    await stage.play(160)
    assert stage.script[-1] == f"abandoned {spared}" and "acted" not in stage.script


@pytest.mark.parametrize(("limit", "called"), [(39, True), (41, True), (61, False)])
async def test_another_limit_below_the_use_spares_nobody(limit: int, called: bool) -> None:
    """Whoever changes it back and forth below what he holds gains nothing by the moment of the last look either."""
    stage = Stage(HOG, POOR)
    stage.at["intended"] = lambda: stage.actors.__setitem__(0, replace(HOG, limit=limit * GIB))
    stage.at["heard accepted"] = lambda: stage.empty("hog-1")
    await stage.play(200)
    assert ("acted" in stage.script) is called


@pytest.mark.parametrize(("limit", "called"), [(39, True), (41, False)])
async def test_a_fence_is_not_lower_than_the_limit_is_now(limit: int, called: bool) -> None:
    """One for a smaller limit than the declared one is not set; one for a larger one is, and falls a round later."""
    stage = Stage(HOG, POOR, rules=replace(UNHURRIED, ladder=(Rung.NOTIFY, Rung.FENCE)))
    stage.at["intended"] = lambda: stage.actors.__setitem__(0, replace(HOG, limit=limit * GIB))
    await stage.play(160)
    assert ("acted" in stage.script) is called is ("abandoned declaration_changed" not in stage.script)


def test_memory_is_free_when_lists_were_read_and_it_is_in_none() -> None:
    """A round whose process lists could not be read tells nothing, neither that it holds memory nor the contrary."""
    play = Play()
    action = play.until_action(HOG, POOR)

    def unread(seen: Snapshot) -> Snapshot:
        return replace(seen, usages=(), devices=tuple(replace(one, containers=None) for one in seen.devices))

    gone = snapshot([POOR], BEGIN + 500)
    assert holds(action, snapshot([HOG, POOR], BEGIN + 500)) is True
    assert holds(action, gone) is False
    assert holds(action, unread(gone)) is None
    assert holds(action, replace(unread(gone), usages=gone.usages)) is False  # the kernel counts, without any list
    assert holds(action, replace(gone, devices=())) is None
