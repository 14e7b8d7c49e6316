"""
What is compared with what: the cases of single snapshots, and the interval of each usage.

Snapshots of a few actors, with one fact changed, come in. Their cases go out.
"""

from dataclasses import replace

import pytest

from enforcer.policy.cases import cases
from enforcer.policy.holder import Target
from enforcer.policy.judgement import judge_all
from enforcer.policy.limit_holders import Case
from enforcer.policy.vocabulary import Reason, State
from exporter.model import Fault, PodUid, Scope, Snapshot
from policy.scenes import BEGIN, GIB, GREEDY, MEEK, UNHURRIED, WALL, Actor, Play, snapshot

ENOUGH = 32
SHARER = Actor("sharer-1", used=60 * GIB, limit=40 * GIB)
OTHER = Actor("other-1", used=10 * GIB, limit=40 * GIB)
CLAIMED = replace(GREEDY, scope="claim", claim="team/shared")
PARTNER = replace(CLAIMED, pod="partner-1", used=GIB)


def sharing(sure: int | None, *actors: Actor, at: float = BEGIN) -> Snapshot:
    """Let so many bytes of the first actor be its own for certain: the rest may be buffers that others share."""
    seen = snapshot(actors or (SHARER, OTHER), at)
    first, *others = seen.usages
    return replace(seen, usages=(replace(first, memory_sure=sure), *others))


def interval(seen: Snapshot, index: int = 0) -> tuple[int, int | None]:
    case = sorted(cases(seen), key=lambda each: each.limit.pod_uid != SHARER.pod_uid)[index]
    return case.low, case.high


def the(seen: Snapshot) -> Case:
    (case,) = cases(seen)
    return case


# --- the interval of a usage ---


def test_an_exact_usage_is_an_interval_of_one_amount() -> None:
    """Where nothing is shared and all was read, low and high are the same."""
    for sure in (None, 60 * GIB):
        assert interval(sharing(sure)) == (60 * GIB, 60 * GIB)


@pytest.mark.parametrize("sure", [0, 1, 41 * GIB])
def test_shared_buffers_are_in_the_high_end_only(sure: int) -> None:
    """DRM drivers count a shared buffer in each process: only what is certain accuses."""
    assert interval(sharing(sure)) == (sure, 60 * GIB)


def test_an_unknown_process_has_no_high_end() -> None:
    """What its other processes hold for certain still accuses a pod or a claim."""
    assert interval(snapshot([replace(SHARER, used=None), OTHER], BEGIN)) == (0, None)
    whole = [replace(SHARER, scope="pod"), replace(SHARER, container="b", used=None, limit=None)]
    case = the(snapshot(whole, BEGIN))
    assert (case.low, case.high, case.unknown, case.used) == (60 * GIB, None, None, 60 * GIB)


@pytest.mark.fault(35)
def test_a_sandboxed_pod_is_judged_as_a_whole() -> None:
    """What its processes hold is known of the pod, and not of the container that was handed the device."""
    sandbox, main = replace(SHARER, container="", scope="pod"), replace(SHARER, used=None)
    seen = snapshot([sandbox, main], BEGIN)
    pods, mains = seen.usages
    seen = replace(seen, usages=(pods, replace(mains, with_pod=True)))
    found = {each.key.container: (each.low, each.high, each.unknown) for each in cases(seen)}
    assert found == {"": (60 * GIB, 60 * GIB, None), "main": (0, None, Reason.READING_UNKNOWN)}


@pytest.mark.parametrize(("too_much", "low"), [(0, 60), (5, 55), (70, 0)])
def test_lists_that_exceed_the_device_are_doubted_by_so_much(too_much: int, low: int) -> None:
    """So many bytes of any one figure may be wrong: they are taken off the low end, and off nothing else."""
    seen = snapshot([SHARER, OTHER], BEGIN, listed_too_much=too_much * GIB)
    assert interval(seen) == (low * GIB, 60 * GIB)


def test_a_neighbour_that_is_not_measured_hides_no_excess() -> None:
    """Doubt is per holder: an unknown process of another pod changes nothing of this one's usage."""
    seen = snapshot([SHARER, replace(OTHER, used=None)], BEGIN)
    assert interval(seen) == (60 * GIB, 60 * GIB)
    assert interval(seen, 1) == (0, None)


@pytest.mark.parametrize(
    ("sure", "used", "over"),
    [
        (60 * GIB, 60 * GIB, True),
        (41 * GIB, 60 * GIB, True),
        (39 * GIB, 60 * GIB, None),
        (39 * GIB, 40 * GIB, False),
        (0, 30 * GIB, False),
    ],
)
def test_the_limit_lies_below_in_or_above_the_interval(sure: int, used: int, *, over: bool | None) -> None:
    """Over with the low end, within with the high end, unknown between them."""
    seen = sharing(sure, replace(SHARER, used=used), OTHER)
    play = Play()
    play.until(State.OVER, SHARER, OTHER)
    judged, _ = judge_all(seen, UNHURRIED, play.history, play.now)
    assert next(each.over for each in judged if each.case.limit.pod_uid == SHARER.pod_uid) is over


def test_shared_buffers_are_in_the_high_end_of_a_claim_only() -> None:
    """What is certainly its pods' own accuses a claim, too; a claim beside it is not concerned."""
    first = replace(SHARER, scope="claim", claim="team/first")
    second = replace(OTHER, scope="claim", claim="team/second")
    by_claim = {case.key.claim: (case.low, case.high) for case in cases(sharing(41 * GIB, first, second))}
    assert by_claim == {"team/first": (41 * GIB, 60 * GIB), "team/second": (10 * GIB, 10 * GIB)}


def test_nothing_is_known_where_the_round_could_not_read() -> None:
    """The GPU, its memory, the PID domain, the kubelet's allocations: each makes every usage there unknown."""
    kubelet = Fault("allocations", "unreachable", "the kubelet does not answer")
    for holder in (GREEDY, replace(GREEDY, scope="pod"), CLAIMED):
        seen = snapshot([holder], BEGIN)
        (device,) = seen.devices
        blind = replace(device, account=replace(device.account, memory=None))
        for unread, reason in (
            (snapshot([holder], BEGIN, read=[]), Reason.READING_UNKNOWN),
            (snapshot([holder], BEGIN, proven=False), Reason.PID_DOMAIN),
            (snapshot([holder], BEGIN, faults=(kubelet,)), Reason.ALLOCATIONS_STALE),
            (replace(seen, devices=()), Reason.READING_UNKNOWN),
            (replace(seen, devices=(blind,)), Reason.READING_UNKNOWN),
        ):
            case = the(unread)
            assert (case.low, case.high, case.unknown, case.used) == (0, None, reason, None)
        idle = the(snapshot([replace(holder, used=0)], BEGIN))
        assert (idle.high, idle.unknown) == (0, None), "nothing is an amount"


@pytest.mark.parametrize(("ago", "pending"), [(0.0, True), (7.5, True), (7.6, False), (-1.0, False)])
def test_a_gpu_that_an_early_round_left_out_is_waited_for(ago: float, *, pending: bool) -> None:
    """One and a half intervals after its last reading it is unknown for good; so is a reading of the future."""
    (case,) = cases(snapshot([GREEDY], BEGIN + 100, read=[], read_ago=ago), 7.5)
    assert (case.unknown, case.pending) == (Reason.READING_UNKNOWN, pending)
    assert not the(snapshot([GREEDY], BEGIN)).pending
    assert snapshot([GREEDY], BEGIN).devices[0].sampled_at == WALL


# --- which limits make a case ---


def test_the_workload_of_a_pod_without_a_name_is_the_pod() -> None:
    """Of a pod that Kubernetes does not name, the UID is all that there is to count by."""
    case = the(snapshot([GREEDY], 1.0, strangers=(GREEDY.pod,)))
    assert case.workload == ("", "Pod", GREEDY.pod_uid)


def test_a_limit_that_is_only_reported_comes_before_one_that_cannot_be_read() -> None:
    """Neither binds; the one with an amount says more."""
    hint = replace(GREEDY, report_only=("a hint",))
    misspelt = replace(GREEDY, used=0, limit=None, problems=("what?",))
    for actors in ((hint, misspelt), (misspelt, hint)):
        play = Play()
        play.steps(ENOUGH, *actors, MEEK)
        assert (play.standing(GREEDY), play.reason(GREEDY)) == (State.HELD, Reason.REPORT_ONLY)


def test_of_two_limits_of_one_holder_the_smaller_counts() -> None:
    """Whatever their order, and a limit that binds nothing never hides one that does."""
    seen = snapshot([GREEDY], 1.0)
    (limit,) = seen.limits
    others = (replace(limit, memory=4 * GIB), replace(limit, memory=GIB, report_only=("a hint",)))
    for limits in ((limit, *others), (*others, limit)):
        assert the(replace(seen, limits=limits)).limit.memory == 4 * GIB


def test_a_container_without_a_reading_is_a_case_too() -> None:
    """It is known by its present generation, and holds an unknown amount, not nothing."""
    case = the(replace(snapshot([GREEDY], 1.0), usages=()))
    assert (case.key.container_id, case.present) == (GREEDY.id, True)
    assert (case.used, case.unknown) == (None, Reason.READING_UNKNOWN)


def test_a_container_s_reading_is_not_its_sibling_s() -> None:
    """Two containers of a pod with a limit each: two holders, each with what it holds itself."""
    sibling = replace(GREEDY, container="sidecar", used=GIB)
    by_name = {
        case.key.container: (case.key.container_id, case.used) for case in cases(snapshot([GREEDY, sibling], 1.0))
    }
    assert by_name == {"main": (GREEDY.id, GREEDY.used), "sidecar": (sibling.id, GIB)}


def test_a_generation_that_kubernetes_does_not_name_is_not_the_present_one() -> None:
    """Neither a container that is not there, nor one that has no id yet, can be acted on."""
    seen = snapshot([GREEDY], 1.0)
    gone = the(replace(seen, containers=()))
    unnamed = tuple(replace(container, id=None) for container in seen.containers)
    starting = the(replace(seen, containers=unnamed, usages=()))
    assert (gone.present, starting.present) == (False, False)


def test_two_generations_of_a_container_are_two_cases_of_one_holder() -> None:
    """Memory of the earlier one is no excess of the present one, and both belong to one level."""
    earlier, now = GREEDY, replace(GREEDY, generation=1, used=GIB)
    seen = snapshot([earlier, now], 1.0)
    seen = replace(seen, containers=seen.containers[1:], limits=seen.limits[1:])
    both = cases(seen)
    assert {(case.key.container_id, case.used, case.present) for case in both} == {
        (earlier.id, GREEDY.used, False),
        (now.id, GIB, True),
    }
    assert len({case.key.holder for case in both}) == 1


def test_a_resource_that_a_claim_serves_is_declared_by_the_claim() -> None:
    """The resource says no amount, and the claim of the same pod does, for the same device."""
    bare = replace(GREEDY, limit=None, undeclared=True)
    claim = replace(GREEDY, container="other", used=GIB, scope="claim", claim="team/own")

    def undeclared(claim: Actor) -> bool:
        return Reason.UNDECLARED in {case.unknown for case in cases(snapshot([bare, claim], 1.0, gpus=2))}

    assert not undeclared(claim)
    assert undeclared(replace(claim, gpu=1))
    assert undeclared(replace(claim, scope="container", claim=""))
    assert undeclared(replace(claim, pod="partner-1"))
    assert undeclared(replace(claim, limit=None, problems=("what?",)))


# --- claims that pods share ---


def test_pods_that_share_a_claim_are_known_from_its_limits_too() -> None:
    """Two pods were handed the claim, and neither uses it yet: it is shared all the same."""
    case = the(replace(snapshot([CLAIMED, PARTNER], 1.0), claim_usages=()))
    assert (case.key.pod_uid, case.key.holder.pod_uid) == ("", "")
    alone = the(replace(snapshot([CLAIMED], 1.0), claim_usages=()))
    assert (alone.key.pod_uid, alone.key.holder.pod_uid) == (GREEDY.pod_uid, "")


def test_a_shared_claim_is_one_case_with_the_pod_that_holds_most() -> None:
    """Its usage is the sum, and its limit is that of the largest pod, which an action would end."""
    case = the(snapshot([CLAIMED, PARTNER], 1.0))
    assert (case.low, case.high) == (71 * GIB, 71 * GIB)
    assert (case.limit.pod_uid, case.pod.name if case.pod else "") == (CLAIMED.pod_uid, "greedy-1")


def test_what_a_pod_holds_without_the_claim_is_not_the_claim_s() -> None:
    """Another container of the smaller pod holds 40 GiB by a limit of its own."""
    beside = replace(GREEDY, pod=PARTNER.pod, container="beside", used=40 * GIB, limit=50 * GIB)
    by_claim = next(
        case for case in cases(snapshot([replace(CLAIMED, used=20 * GIB), PARTNER, beside], 1.0)) if case.key.claim
    )
    assert (by_claim.low, by_claim.limit.pod_uid) == (21 * GIB, CLAIMED.pod_uid)


def test_memory_of_a_claim_s_pod_that_kubernetes_does_not_know_counts() -> None:
    """It is not known to end, so that the claim is charged with it; the pod that is known would be ended."""
    case = the(snapshot([CLAIMED, PARTNER], 1.0, strangers=[CLAIMED.pod]))
    assert (case.low, case.limit.pod_uid) == (71 * GIB, PARTNER.pod_uid)


def test_the_largest_container_of_a_claim_is_one_of_its_largest_pod() -> None:
    """Another pod has the largest container, and less in all: a kill would not end that one."""
    first, second = (replace(CLAIMED, container=name, used=20 * GIB) for name in ("a", "b"))
    other = replace(PARTNER, container="large", used=30 * GIB)
    case = the(snapshot([other, first, second], 1.0))
    assert (case.limit.pod_uid, case.largest) == (CLAIMED.pod_uid, Target("a", first.id))


def test_ties_of_a_shared_claim_go_to_the_first_uid() -> None:
    """Two pods with the same memory: always the same one."""
    one, two = replace(CLAIMED, used=20 * GIB), replace(PARTNER, used=20 * GIB)
    assert the(snapshot([one, two], 1.0)).limit.pod_uid == the(snapshot([two, one], 1.0)).limit.pod_uid


def test_a_protected_pod_of_a_shared_claim_is_not_the_victim() -> None:
    """The largest pod that is not protected is, and it is accused of nothing that the protected one holds."""
    case = next(iter(cases(snapshot([CLAIMED, PARTNER], 1.0), spared=lambda pod: pod.name == "greedy-1")))
    assert (case.limit.pod_uid, case.low) == (PARTNER.pod_uid, GIB)


def test_memory_of_a_pod_that_ends_is_not_charged_to_the_others() -> None:
    """Where only the pods that end bring the claim above its limit, the largest of them is judged, and no other one."""
    ends = replace(CLAIMED, facts={"terminating": True})
    case = the(snapshot([ends, PARTNER], 1.0))
    assert (case.limit.pod_uid, case.low, case.high) == (CLAIMED.pod_uid, 71 * GIB, 71 * GIB)
    within = the(snapshot([replace(ends, used=5 * GIB), PARTNER], 1.0))
    assert (within.limit.pod_uid, within.low, within.high) == (PARTNER.pod_uid, GIB, 6 * GIB)
    above = the(snapshot([replace(ends, used=40 * GIB), replace(PARTNER, used=20 * GIB)], 1.0))
    assert (above.limit.pod_uid, above.low) == (PARTNER.pod_uid, 20 * GIB)
    alone = the(snapshot([ends], 1.0))
    assert (alone.limit.pod_uid, alone.low) == (CLAIMED.pod_uid, 70 * GIB)


@pytest.mark.parametrize(("known", "over"), [(70 * GIB, True), (10 * GIB, True), (8 * GIB, None), (0, None)])
def test_a_claim_with_an_unknown_process_is_accused_of_what_is_known(known: int, over: bool | None) -> None:
    """The known part above the limit of 8 GiB accuses. Below it the claim is unknown, and never within its limit."""
    seen = snapshot([replace(CLAIMED, used=known), replace(PARTNER, used=None)], BEGIN)
    case = the(seen)
    assert (case.low, case.high) == (known, None)
    assert case.unknown is (None if known else Reason.READING_UNKNOWN)
    play = Play()
    (judged,), _ = judge_all(seen, UNHURRIED, play.history, play.now)
    assert judged.over is over


def test_a_claim_with_an_unknown_process_is_acted_on() -> None:
    """Several known pods are above the limit together: the largest of them is acted on, in the usual time."""
    pods = [replace(CLAIMED, used=6 * GIB), replace(PARTNER, used=5 * GIB)]
    unmeasured = replace(PARTNER, pod="unmeasured-1", used=None)
    play, usual = Play(), Play()
    assert play.until_action(*pods, unmeasured).pod_uid == CLAIMED.pod_uid
    usual.until_action(*pods)
    assert play.monotonic == usual.monotonic


def test_an_unknown_process_of_a_claim_within_its_limit_keeps_its_pods() -> None:
    """The known part is below the limit: nothing is acted on, however long it lasts."""
    play = Play()
    play.steps(2 * ENOUGH, replace(CLAIMED, used=7 * GIB), replace(PARTNER, used=None))
    assert (play.actions, play.history.levels) == ([], {})


def test_memory_that_may_be_held_by_another_claim_accuses_none() -> None:
    """Both claims are of one device, and one pod holds both: its memory adds to neither."""
    seen = snapshot([CLAIMED, replace(PARTNER, used=9 * GIB)], BEGIN)
    (usage,) = seen.claim_usages
    doubtful = frozenset(each for each in usage.subjects if each.pod_uid == CLAIMED.pod_uid)
    case = the(replace(seen, claim_usages=(replace(usage, memory_used=None, doubtful=doubtful),)))
    assert (case.low, case.high) == (9 * GIB, None)


def test_a_claim_s_holder_is_the_claim() -> None:
    """Whichever pods use it, and however many: the level belongs to the claim."""
    one, two = the(snapshot([CLAIMED], 1.0)), the(snapshot([CLAIMED, PARTNER], 1.0))
    assert one.key.holder == two.key.holder
    assert one.key.holder.claim == "team/shared"
    assert one.key.holder.pod_uid == PodUid("")


def test_a_limit_of_each_process_is_no_limit_of_the_container() -> None:
    """The number of processes is not declared."""
    assert the(snapshot([replace(GREEDY, scope="process")], 1.0)).unknown is Reason.PROCESS_SCOPE


def test_a_smaller_limit_of_each_process_hides_no_limit_of_the_container() -> None:
    """It binds nothing, whichever is declared first."""
    seen = snapshot([GREEDY], 1.0)
    (limit,) = seen.limits
    each = replace(limit, memory=GIB, scope=Scope.PROCESS)
    for limits in ((limit, each), (each, limit)):
        assert the(replace(seen, limits=limits)).limit is limit


@pytest.mark.parametrize(
    "facts", [{}, {"terminating": True}, {"priority": 2_000_000_000}], ids=["stays", "ends", "protected"]
)
def test_what_the_only_pod_of_a_claim_holds_is_shown(facts: dict[str, object]) -> None:
    """A pod that ends or is protected is not charged in favour of others, of which there are none."""
    play = Play()
    play.step(replace(CLAIMED, used=5 * GIB, facts=facts), MEEK)
    assert [each.used for each in play.verdicts[-1].standings if each.claim] == [5 * GIB]


@pytest.mark.parametrize(
    ("stays", "ends", "judged", "low"),
    [(4, 4, "partner-1", 4), (4, 5, "greedy-1", 9), (8, 1, "greedy-1", 9), (9, 1, "partner-1", 9)],
)
def test_a_pod_that_ends_is_judged_where_it_alone_brings_the_claim_above_its_limit(
    stays: int, ends: int, judged: str, low: int
) -> None:
    """A claim of 8 GiB: exactly the limit is within it, of both pods together and of the pod that stays."""
    leaving = replace(CLAIMED, used=ends * GIB, facts={"terminating": True})
    case = the(snapshot([leaving, replace(PARTNER, used=stays * GIB)], 1.0))
    assert (case.pod.name if case.pod else "", case.low) == (judged, low * GIB)


def test_a_pod_that_ends_and_has_no_limit_any_more_is_not_judged() -> None:
    """Its declaration is gone from the round, its memory is not: the pod that stays is within the claim's limit."""
    leaving = replace(CLAIMED, limit=None, facts={"terminating": True})
    case = the(snapshot([leaving, PARTNER], 1.0))
    assert (case.limit.pod_uid, case.low) == (PARTNER.pod_uid, GIB)
