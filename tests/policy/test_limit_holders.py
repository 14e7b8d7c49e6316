"""
Who is compared with what, told of single snapshots.

What comes in: snapshots of a few actors, with one fact taken away. What goes out: their cases.
"""

from dataclasses import replace

from enforcer.policy.limit_holders import cases
from enforcer.policy.vocabulary import Reason, State
from policy.refusals import ENOUGH
from policy.scenes import GIB, GREEDY, MEEK, Play, snapshot


def test_the_workload_of_a_pod_that_nobody_named_is_the_pod() -> None:
    """Of a pod that Kubernetes told nothing of, the UID is all that there is to count by."""
    (case,) = cases(snapshot([GREEDY], 1.0, strangers=(GREEDY.pod,)))
    assert case.workload == ("", "Pod", GREEDY.pod_uid)


def test_a_limit_that_may_be_reported_is_told_before_one_that_cannot_be_read() -> None:
    """Neither binds; the one with an amount says more."""
    hint = replace(GREEDY, report_only=("a hint",))
    misspelt = replace(GREEDY, used=0, limit=None, problems=("what?",))
    for actors in ((hint, misspelt), (misspelt, hint)):
        play = Play()
        play.steps(ENOUGH, *actors, MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.REPORT_ONLY)


def test_who_shares_a_claim_is_known_from_its_limits_too() -> None:
    """Two pods were handed the claim, and neither uses it yet: it is shared all the same."""
    claimed = replace(GREEDY, scope="claim", claim="team/shared")
    seen = snapshot([claimed, replace(claimed, pod="sharer-1", used=GIB)], 1.0)
    (case,) = cases(replace(seen, claim_usages=()))
    assert (case.pods, case.key.pod_uid) == (2, "")
    (alone,) = cases(replace(snapshot([claimed], 1.0), claim_usages=()))
    assert (alone.pods, alone.key.pod_uid) == (1, GREEDY.pod_uid)


def test_a_container_without_a_reading_is_a_case_too() -> None:
    """Nothing was read of it: it is known by its present generation, and holds an unknown amount, not nothing."""
    (case,) = cases(replace(snapshot([GREEDY], 1.0), usages=()))
    assert (case.key.container_id, case.present) == (GREEDY.id, True)
    assert (case.used, case.unknown) == (None, Reason.READING_UNKNOWN)


def test_a_container_s_reading_is_not_its_sibling_s() -> None:
    """Two containers of a pod with a limit each: two subjects, each with what it holds itself."""
    sibling = replace(GREEDY, container="sidecar", used=GIB)
    found = {one.key.container: (one.key.container_id, one.used) for one in cases(snapshot([GREEDY, sibling], 1.0))}
    assert found == {"main": (GREEDY.id, GREEDY.used), "sidecar": (sibling.id, GIB)}


def test_a_generation_that_nobody_knows_is_not_the_present_one() -> None:
    """Neither a container that is not there, nor one that has no id yet, is a subject to act on."""
    seen = snapshot([GREEDY], 1.0)
    (gone,) = cases(replace(seen, containers=()))
    unnamed = tuple(replace(one, id=None) for one in seen.containers)
    (starting,) = cases(replace(seen, containers=unnamed, usages=()))
    assert (gone.present, starting.present) == (False, False)
