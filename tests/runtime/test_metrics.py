"""The policy's metrics, as a scraper reads them."""

from dataclasses import replace
from functools import cache

import pytest

from default_rules import default_rules
from enforcer.messages.tally import FAILURES, Tally
from enforcer.policy import breakers
from enforcer.policy.history import History, Result
from enforcer.policy.holds import held
from enforcer.policy.rules import Ceiling, Rules
from enforcer.policy.vocabulary import Breaker, Mode, Place, Reason, Rung
from enforcer.runtime.metrics import FAMILIES, collect
from exporter.metrics.exposition import Exposition
from exporter.model import DeviceKey, GpuUuid, Snapshot
from exporter.rounds.latest import Latest
from policy.scenes import BEGIN, CONSENTING, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, settled, snapshot
from scraped import families, series

DRY = replace(UNHURRIED, mode=Mode.DRY_RUN)
WHO = ("namespace", "pod", "container")


class Node:
    """A play, and the page of metrics after each of its rounds."""

    def __init__(self, rules: Rules = DRY) -> None:
        self.play = Play(rules, settled(rules))
        self.tally = Tally()
        self.seen: Snapshot | None = None

    def rounds(self, count: int, *actors: Actor, **world: object) -> str:
        """Let so many rounds pass; the page after the last."""
        for _ in range(count):
            verdict = self.play.step(*actors, **world)  # type: ignore[arg-type]
            self.tally = self.tally.after(verdict, WALL + self.play.monotonic - BEGIN, WALL - BEGIN)
            self.seen = snapshot(actors, self.play.monotonic, **world)  # type: ignore[arg-type]
        return self.page()

    def page(self, accept: str = "") -> str:
        """Render what Prometheus would get."""
        latest = Latest()
        latest.snapshot = self.seen
        assert self.seen is not None
        play = self.play

        def more(seen: Snapshot) -> object:
            return collect(seen, play.verdicts[-1], play.history, self.tally, play.rules)

        exposition = Exposition(latest, node="node", version="0", more=more)  # type: ignore[arg-type]
        return exposition.page(now=self.seen.monotonic, interval=5.0, accept=accept).body.decode()


def test_counters_begin_at_zero_for_each_step_and_namespace() -> None:
    """The first eviction of a namespace shows in `increase()`, because there was a 0 before it; so does a failure."""
    ladder = (Rung.NOTIFY, Rung.EVICT, Rung.KILL)
    node = Node(replace(DRY, ladder=ladder, kill_when_blocked=True))
    page = node.rounds(1, GREEDY, replace(MEEK, namespace="other"), Actor("free-1", GIB, limit=None, namespace="free"))
    wanted = {(str(rung), namespace): 0 for rung in ladder for namespace in ("team", "other")}
    for name in ("actions_total", "dry_run_actions_total"):
        assert series(page, name, "action", "namespace") == wanted
    assert series(page, "action_failures_total", "action", "namespace", "reason") == {
        (str(rung), namespace, str(result)): 0
        for rung in (Rung.EVICT, Rung.KILL)
        for namespace in ("team", "other")
        for result in FAILURES
    }
    assert series(page, "warnings_undelivered_total", "namespace") == {("team",): 0, ("other",): 0}


def test_an_action_counts_when_its_request_was_sent_and_a_failure_says_why() -> None:
    """A decision alone is no action: the last look may spare, and a request may fail before it is sent."""
    node = Node(UNHURRIED)
    action = node.play.until_action(GREEDY, MEEK)
    page = node.rounds(1, GREEDY, MEEK)
    assert set(series(page, "actions_total", "action").values()) == {0}
    node.tally = node.tally.ended(action, Result.FAILED, "the driver did not answer", WALL, 150.0)
    assert set(series(node.page(), "actions_total", "action").values()) == {0}
    failures = series(node.page(), "action_failures_total", "action", "reason")
    assert {key: count for key, count in failures.items() if count} == {("evict", "failed"): 1}
    node.tally = node.tally.sent(action).ended(action, Result.ACCEPTED, "", WALL, 150.0)
    assert series(node.page(), "actions_total", "action")["evict",] == 1
    assert series(node.page(), "last_action_timestamp_seconds", "pod") == {}, "accepted is not seen"
    node.tally = node.tally.ended(action, Result.VERIFIED, "", WALL + 150, 180.0)
    assert series(node.page(), "last_action_timestamp_seconds", "pod") == {("greedy-1",): WALL + 150}


def test_what_happened_stays_counted_when_everybody_is_gone() -> None:
    """A counter of a namespace whose pods left is not withdrawn; one that never counted is."""
    node = Node()
    node.rounds(40, GREEDY, replace(MEEK, namespace="other"))
    page = node.rounds(1, Actor("new-1", GIB, namespace="third"))
    counts = series(page, "dry_run_actions_total", "action", "namespace")
    assert counts == {("evict", "team"): 1, ("evict", "third"): 0, ("notify", "third"): 0}


def test_held_says_what_alone_holds_an_action_back() -> None:
    """By reason, its kind and namespace, as of this round; refusals are counted when they begin, and stay."""
    node = Node(UNHURRIED)
    labels = ("reason", "kind", "namespace")
    page = node.rounds(60, GREEDY, MEEK, namespaces={"team": {}})
    assert series(page, "held_containers", *labels) == {("no_consent", "chosen", "team"): 1}
    assert series(page, "refusals_total", *labels) == {("no_consent", "chosen", "team"): 1}
    page = node.rounds(80, replace(GREEDY, used=GIB), MEEK)
    assert series(page, "held_containers", *labels) == {}
    assert series(page, "refusals_total", *labels)["no_consent", "chosen", "team"] == 1


def test_due_seconds_say_for_how_long_an_action_was_due_and_why_none_happened() -> None:
    """A counter for each reason and its kind: alerts add them up over an hour, also where the reason comes and goes."""
    node = Node(UNHURRIED)
    labels = (*WHO, "gpu", "reason", "kind")
    page = node.rounds(40, GREEDY, MEEK, namespaces={"team": {}})
    who = ("team", GREEDY.pod, "main", "0")
    before = series(page, "due_seconds_total", *labels)
    assert before.keys() == {(*who, "no_consent", "chosen")}
    page = node.rounds(10, GREEDY, MEEK, namespaces={"team": {}})
    assert series(page, "due_seconds_total", *labels)[*who, "no_consent", "chosen"] == 50 + sum(before.values())
    done = History(due_seconds={("team", GREEDY.pod, "main", DeviceKey(GpuUuid("GPU-0")), None): 5.0})
    node.play.history = replace(node.play.history, due_seconds=done.due_seconds)
    assert series(node.page(), "due_seconds_total", *labels) == {(*who, "", ""): 5}


def test_a_namespace_without_its_rolebinding_is_named() -> None:
    """Before anything is due there; other holds are not of this metric."""
    node = Node(UNHURRIED)
    node.rounds(1, MEEK)
    assert series(node.page(), "namespace_rights_missing", "namespace") == {}
    play = node.play
    play.history = held(play.history, Place.NAMESPACE, "team", Reason.NO_RIGHTS, play.now, seconds=None)
    play.history = held(play.history, Place.NAMESPACE, "past", Reason.NO_RIGHTS, play.now, seconds=0.0)
    play.history = held(play.history, Place.NODE, "", Reason.UNAUTHORIZED, play.now, seconds=60.0)
    assert series(node.page(), "namespace_rights_missing", "namespace") == {("team",): 1}


def test_of_two_generations_of_one_name_the_more_urgent_state_is_shown() -> None:
    """One series for each name and device, although two pods have it while one of them terminates."""
    old = replace(GREEDY, uid="old", used=GIB, facts={"terminating": True})
    new = replace(GREEDY, uid="new")
    node = Node()
    page = node.rounds(10, old, new, MEEK)
    states = series(page, "container_state", *WHO, "gpu", "state")
    assert [key for key in states if key[1] == GREEDY.pod] == [("team", GREEDY.pod, "main", "0", "grace")]


def test_a_restart_goes_on_in_the_same_series() -> None:
    """Seconds above the limit are the name's, over both generations."""
    node = Node()
    before = series(node.rounds(10, GREEDY, MEEK), "container_over_limit_seconds_total", *WHO)
    again = replace(GREEDY, generation=1)
    after = series(node.rounds(10, again, MEEK), "container_over_limit_seconds_total", *WHO)
    who = ("team", GREEDY.pod, "main")
    assert (before[who], after[who]) == (45, 95)


def test_limits_of_pods_and_claims_have_series_of_their_own() -> None:
    """The container is empty there; a pod without a known name has no series of state."""
    pod_wide = Actor("all-1", 30 * GIB, scope="pod")
    claimed = Actor("rank-0", 30 * GIB, scope="claim", claim="team/shared", gpu=1)
    nameless = Actor("who-1", 30 * GIB)
    node = Node()
    page = node.rounds(3, pod_wide, claimed, nameless, gpus=2, strangers=["who-1"])
    states = series(page, "container_state", *WHO, "gpu")
    assert states.keys() == {("team", "all-1", "", "0"), ("team", "rank-0", "", "1")}


def test_mode_breakers_and_budgets() -> None:
    """One mode, each breaker as 0 or 1, and what is left to spend; a dry run spends nothing."""
    node = Node(replace(DRY, budgets=default_rules().budgets))
    page = node.rounds(40, GREEDY, MEEK)
    assert series(page, "enforcement_mode", "mode") == {("dry-run",): 1}
    assert series(page, "breaker_open", "breaker") == {(str(one),): 0 for one in Breaker}
    assert series(page, "budget_remaining", "scope") == {("node",): 3, ("namespace",): 2}
    opened = breakers.opened({}, Breaker.ATTRIBUTION, 0.0, "the memory lives on")
    node.play.history = replace(node.play.history, breakers=opened)
    page = node.rounds(1, GREEDY, MEEK)
    assert {key for key, value in series(page, "breaker_open", "breaker").items() if value} == {("attribution",)}
    node.play.rules = replace(DRY, mode=Mode.OFF)
    page = node.rounds(1, GREEDY, MEEK)
    assert series(page, "enforcement_mode", "mode") == {("off",): 1}
    assert series(page, "container_state", *WHO) == {}, "in mode off nothing is judged"


def test_what_is_asked_for_stands_beside_what_is_in_force() -> None:
    """Where enforcement is configured but not in force, both modes are exported, before any pod is due."""
    enforcing = replace(UNHURRIED, mode=Mode.ENFORCE)
    node = Node(replace(enforcing, ceilings=(Ceiling(Mode.DRY_RUN, Reason.NOT_ARMED),)))
    page = node.rounds(1, MEEK)
    assert series(page, "enforcement_mode", "mode") == {("dry-run",): 1}
    assert series(page, "configured_mode", "mode") == {("enforce",): 1}
    node.play.rules = enforcing
    page = node.rounds(1, MEEK)
    assert series(page, "enforcement_mode", "mode") == series(page, "configured_mode", "mode") == {("enforce",): 1}


@cache
def crowded() -> Node:
    """Play once, for both formats, 40 rounds of 40 pods: 0.1 s."""
    crowd = [
        replace(
            GREEDY, pod=f"p-{number % 7}", uid=f"u-{number}", gpu=number % 3, used=(number % 9) * GIB, limit=2 * GIB
        )
        for number in range(40)
    ]
    node = Node()
    node.rounds(40, *crowd, gpus=3, namespaces={"team": CONSENTING})
    return node


@pytest.mark.parametrize("accept", ["", "application/openmetrics-text"])
def test_no_two_samples_share_their_labels(accept: str) -> None:
    """Prometheus would refuse the whole page. A node with many pods, generations, devices and reasons."""
    seen = set()
    for family in families(crowded().page(accept)):
        assert family.samples
        for sample in family.samples:
            key = (sample.name, *sorted(sample.labels.items()))
            assert key not in seen, key
            seen.add(key)
    names = {key[0] for key in seen}
    assert "gpusteward_held_containers" in names or "gpusteward_refusals_total" in names


def test_each_word_is_a_label_of_the_page() -> None:
    """The label `reason` has the value that the documents use, not the name in Python."""
    node = Node(UNHURRIED)
    page = node.rounds(60, GREEDY, MEEK, namespaces={"team": {}})
    ((reason,),) = series(page, "held_containers", "reason")
    assert reason == Reason.NO_CONSENT.value
    assert {family.name for family in FAMILIES} >= {"gpusteward_held_containers", "gpusteward_enforcement_mode"}
