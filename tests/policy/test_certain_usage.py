"""What is held against somebody whose buffers others have, too."""

from dataclasses import replace

import pytest

from enforcer.policy.certain_usage import certain
from enforcer.policy.decide import decide
from enforcer.policy.history import History, Moment
from enforcer.policy.vocabulary import Reason, State
from exporter.model import ClaimUsage, Snapshot
from policy.scenes import BEGIN, GIB, UNHURRIED, Actor, snapshot

SHARER = Actor("sharer-1", used=60 * GIB, limit=40 * GIB)
OTHER = Actor("other-1", used=10 * GIB, limit=40 * GIB)


def sharing(sure: int | None, *actors: Actor, at: float = BEGIN) -> Snapshot:
    """Let so many bytes of the first be surely its own."""
    seen = snapshot(actors or (SHARER, OTHER), at)
    first, *others = seen.usages
    return replace(seen, usages=(replace(first, memory_sure=sure), *others))


def used(seen: Snapshot) -> list[int | None]:
    return [one.memory_used for one in certain(seen).usages]


def test_where_nothing_is_shared_the_snapshot_itself_is_judged() -> None:
    """The usual case costs one look at each usage."""
    for seen in (sharing(None), sharing(60 * GIB)):
        assert certain(seen) is seen


@pytest.mark.parametrize(
    ("sure", "counts"),
    [(41 * GIB, 41 * GIB), (40 * GIB, None), (0, None)],
    ids=["certain excess", "the limit lies between", "all of it may be another's"],
)
def test_the_limit_decides_which_bytes_count(sure: int, counts: int | None) -> None:
    """Over by what is surely its own: that counts. Over only with what others hold, too: nobody knows."""
    assert used(sharing(sure)) == [counts, 10 * GIB]


def test_who_is_within_its_limit_is_so_with_all_it_reports() -> None:
    """Else it would look as if it could still take what it holds, and that is what victims are justified by."""
    within = replace(SHARER, used=30 * GIB)
    assert used(sharing(1 * GIB, within, OTHER)) == [30 * GIB, 10 * GIB]


def test_at_the_limit_is_within_it() -> None:
    """All that it reports is what it may have."""
    assert used(sharing(1 * GIB, replace(SHARER, used=40 * GIB), OTHER))[0] == 40 * GIB


def test_what_is_unknown_stays_so_and_a_limit_without_an_amount_decides_nothing() -> None:
    """A process that could not be read, beside a buffer that is surely its own; a declaration that is no number."""
    assert used(sharing(1 * GIB, replace(SHARER, used=None), OTHER))[0] is None
    seen = sharing(41 * GIB)
    broken = tuple(replace(one, memory=None) for one in seen.limits)
    assert used(replace(seen, limits=broken))[0] == 60 * GIB
    assert used(replace(seen, limits=(*broken, *seen.limits)))[0] == 41 * GIB


def test_what_the_pod_declares_is_not_told_by_one_container() -> None:
    """A limit for all of them together, or of a claim: nothing of the shared bytes is certain."""
    within = replace(SHARER, used=30 * GIB, scope="pod")
    assert used(sharing(1 * GIB, within, OTHER))[0] is None, "its other containers hold something, too"
    for scope in ({"scope": "pod"}, {"scope": "claim", "claim": "team/c"}):
        wide = replace(SHARER, **scope)  # type: ignore[arg-type]
        assert used(sharing(41 * GIB, wide, OTHER))[0] is None


def test_who_declares_nothing_is_left_as_it_is() -> None:
    """Nobody judges it."""
    assert used(sharing(1 * GIB, replace(SHARER, limit=None), OTHER))[0] == 60 * GIB


def test_a_claim_of_sharers_is_unknown() -> None:
    """Whose buffers they are is not told by summing them up."""
    seen = sharing(41 * GIB)
    first, second = seen.usages
    mine = ClaimUsage("team", "mine", first.device, 60 * GIB, frozenset({first.subject}))
    others = ClaimUsage("team", "others", first.device, 10 * GIB, frozenset({second.subject}))
    elsewhere = replace(mine, device=replace(first.device, gpu_instance=1))
    judged = certain(replace(seen, claim_usages=(mine, others, elsewhere))).claim_usages
    assert [one.memory_used for one in judged] == [None, 10 * GIB, 60 * GIB]


@pytest.mark.parametrize(("sure", "ends"), [(41 * GIB, State.DUE), (39 * GIB, State.UNJUDGED)])
def test_only_certain_bytes_lead_to_an_action(sure: int, ends: State) -> None:
    """60 GiB are reported in either case."""
    history, states, actions = History(), [], []
    for round_ in range(60):
        at = BEGIN + 5.0 * round_
        history, verdict = decide(sharing(sure, at=at), UNHURRIED, history, Moment(at, at))
        (standing,) = [one for one in verdict.standings if one.key.pod_uid == SHARER.pod_uid]
        states.append((standing.state, standing.reason))
        actions += [verdict.action] if verdict.action else []
    assert bool(actions) is (ends is State.DUE)
    if ends is State.UNJUDGED:
        assert set(states) == {(State.UNJUDGED, Reason.READING_UNKNOWN)}
