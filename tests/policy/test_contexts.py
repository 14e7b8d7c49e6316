"""
CUDA contexts: how much a use may exceed a limit that does not include them.

Limits, processes, and plays of pods that are configured as their users do come in. Bytes and states go out.
"""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from enforcer.messages import sentences
from enforcer.policy.cases import cases
from enforcer.policy.preview import preview
from enforcer.policy.vocabulary import State, Trigger
from exporter.model import (
    Context,
    DeviceKey,
    EnforcedBy,
    GpuUuid,
    Limit,
    Mechanism,
    PodUid,
    Scope,
    Tolerance,
    processes_of,
)
from policy.scenes import GIB, MEEK, UNHURRIED, Actor, Play, settled, snapshot

MIB = 2**20
CONTEXT = 512 * MIB
DEFAULT = UNHURRIED.tolerance
LIMITED = replace(UNHURRIED, trigger=Trigger.LIMIT, grace=30.0)
"""The limit alone counts, whatever neighbours need."""

amounts = st.integers(1, 2**40)
processes = st.lists(st.integers(0, 2**38), max_size=200)
tolerances = st.builds(Tolerance, st.floats(0, 1), st.integers(0, 2**32), st.integers(0, 2**32))
contexts = st.sampled_from(Context)


def declared(memory: int | None, context: Context = Context.EXCLUDED, headroom: int | None = None) -> Limit:
    """Make a limit of a container."""
    return Limit(
        PodUid("p"),
        "main",
        DeviceKey(GpuUuid("GPU-0")),
        memory,
        "policy",
        Mechanism.ANNOTATION,
        Scope.CONTAINER,
        EnforcedBy.NONE,
        context=context,
        headroom=headroom,
    )


def framework(limit: int = 8 * GIB, count: int = 1, **facts: object) -> Actor:
    """Configure a pod as TensorFlow's users do: fractions add up to the limit, and each process has a context."""
    each = limit // count + CONTEXT
    actor = Actor("framework-1", each * count, limit=limit, context=Context.EXCLUDED, processes=(each,) * count)
    return replace(actor, **facts)  # type: ignore[arg-type]


@given(tolerances, amounts, amounts, contexts, processes)
def test_a_larger_limit_never_has_a_lower_ceiling(
    tolerance: Tolerance, one: int, other: int, context: Context, sizes: list[int]
) -> None:
    """The ceiling is monotone in the limit, whatever the processes."""
    low, high = sorted((one, other))
    for known in (sizes, None):
        below, above = (tolerance.ceiling(declared(size, context), known) for size in (low, high))
        assert below is not None and above is not None and below <= above


@given(tolerances, amounts, contexts, st.none() | st.integers(0, 2**40), processes)
def test_the_allowance_has_a_cap(
    tolerance: Tolerance, memory: int, context: Context, headroom: int | None, sizes: list[int]
) -> None:
    """However many processes: one context or a quarter of the limit, and no more than another declaration leaves."""
    limit = declared(memory, context, headroom)
    allowed, unknown = tolerance.contexts(limit, sizes), tolerance.contexts(limit, None)
    assert 0 <= allowed <= unknown <= max(tolerance.per_process, memory // 4)
    assert allowed <= sum(sizes) and allowed <= tolerance.per_process * len(sizes)
    assert headroom is None or unknown <= headroom


@given(tolerances, amounts, processes)
def test_a_limit_that_includes_contexts_allows_nothing_for_them(
    tolerance: Tolerance, memory: int, sizes: list[int]
) -> None:
    """Included contexts are in the limit: known or unknown, processes add nothing."""
    limit = declared(memory, Context.INCLUDED)
    for known in (sizes, None):
        assert tolerance.contexts(limit, known) == 0
        assert tolerance.ceiling(limit, known) == tolerance.above(memory)


@given(tolerances, amounts, processes, st.integers(0, 2**38))
def test_another_process_never_lowers_the_ceiling(
    tolerance: Tolerance, memory: int, sizes: list[int], more: int
) -> None:
    """A process that starts, or grows, takes nothing from the others."""
    limit = declared(memory)
    assert tolerance.contexts(limit, sizes) <= tolerance.contexts(limit, [*sizes, more])


@given(st.integers(1, 64), st.integers(2 * 2**30, 80 * 2**30))
def test_a_framework_at_its_limit_is_within_it(count: int, memory: int) -> None:
    """A fraction equal to the limit plus one context for each process, up to a quarter of the limit in contexts."""
    count = min(count, max(1, memory // 4 // CONTEXT))
    actor = framework(memory, count)
    ceiling = DEFAULT.ceiling(declared(memory), actor.processes)
    assert actor.used is not None and ceiling is not None and actor.used <= ceiling


def test_no_limit_has_no_ceiling_and_zero_allows_nothing() -> None:
    """Without a limit nothing can be exceeded; per_process 0 switches the allowance off, also for unknown processes."""
    assert DEFAULT.ceiling(declared(None), (GIB,)) is None
    assert DEFAULT.contexts(declared(None), None) == 0
    off = replace(DEFAULT, per_process=0)
    assert off.contexts(declared(8 * GIB), None) == off.contexts(declared(8 * GIB), (GIB,)) == 0


def test_processes_are_unknown_where_one_may_be_missing() -> None:
    """A usage without its processes' bytes makes them all unknown, unless it is known to be nothing."""
    seen = snapshot([framework(), Actor("bare-1", GIB), Actor("idle-1", 0)], 1.0).usages
    assert processes_of(seen[:1]) == framework().processes
    assert processes_of(seen[:2]) is None
    assert processes_of([seen[0], seen[2]]) == framework().processes
    assert processes_of([replace(seen[1], memory_used=None)]) is None


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("context", [Context.EXCLUDED, Context.UNKNOWN])
def test_a_well_configured_pod_is_left_alone(count: int, context: Context) -> None:
    """With trigger limit, a TensorFlow or vLLM pod whose fractions add up to the limit is never over it."""
    play = Play(LIMITED)
    play.steps(20, framework(count=count, context=context))
    assert play.standing(framework()) is State.OK
    assert not play.actions


def test_where_the_limit_includes_contexts_the_same_pod_is_over() -> None:
    """A system that counts contexts would not have let it go there."""
    play = Play(LIMITED)
    play.until(State.ACTING, framework(context=Context.INCLUDED))


def test_a_hundred_tiny_processes_gain_no_more_than_the_cap() -> None:
    """A pod that forks exceeds its limit by a quarter at most."""
    most = 8 * GIB + 256 * MIB + 2 * GIB
    fork = Actor("fork-1", most, context=Context.EXCLUDED, processes=(most // 100,) * 100)
    play = Play(LIMITED)
    play.step(fork)
    assert play.standing(fork) is State.OK
    play.until(State.ACTING, replace(fork, used=most + 1))


def test_unknown_processes_spare_up_to_the_cap() -> None:
    """Where the processes are not known the most is allowed, and a byte more is over."""
    most = 8 * GIB + 256 * MIB + 2 * GIB
    for used, state in ((most, State.OK), (most + 1, State.OVER)):
        hidden = Actor("hidden-1", used, context=Context.UNKNOWN, processes=None)
        play = Play(LIMITED)
        play.step(hidden)
        assert play.standing(hidden) is state


def test_processes_that_start_later_do_not_start_the_level_anew() -> None:
    """An excess that goes on is the same excess, whatever was allowed for contexts at each moment."""
    alone = Actor("fork-1", 12 * GIB, context=Context.EXCLUDED, processes=(12 * GIB,))
    forked = replace(alone, processes=(3 * GIB,) * 4)
    play, still = Play(LIMITED), Play(LIMITED)
    for number in range(12):
        play.step(forked if number % 2 else alone)
        still.step(alone)
        assert play.standing(alone) is still.standing(alone)
    assert play.actions


def test_a_pod_that_returns_to_its_limit_and_contexts_is_within_it() -> None:
    """The end of an excess is the limit with what is allowed for contexts: the fraction need not be smaller."""
    over = framework(used=12 * GIB, processes=(12 * GIB,))
    play = Play(LIMITED)
    play.until(State.GRACE, over)
    play.steps(12, framework())
    assert play.standing(over) is State.OK
    assert play.history.levels == {}


def test_a_new_allowance_restarts_nothing() -> None:
    """Each reading is judged by the ceiling of its own moment: starting a process must not erase a level."""
    alone = Actor("fork-1", 12 * GIB, context=Context.EXCLUDED, processes=(12 * GIB,))
    most = replace(alone, processes=(3 * GIB,) * 4)
    play = Play(LIMITED)
    for number in range(9):
        play.step(most if number % 3 == 2 else alone)
    (level,) = play.history.levels.values()
    assert (level.seconds, level.warned_at is not None) == (40.0, True)


@pytest.mark.parametrize(("context", "seconds"), [(Context.INCLUDED, 25.0), (Context.EXCLUDED, 15.0)])
def test_a_declaration_that_comes_to_exclude_contexts_is_another_limit(context: Context, seconds: float) -> None:
    """What was counted must exceed the most that the new declaration allows, too."""
    play = Play(LIMITED)
    play.steps(5, Actor("job-1", 9 * GIB))
    play.step(Actor("job-1", 12 * GIB, context=context, processes=(12 * GIB,)))
    (level,) = play.history.levels.values()
    assert level.seconds == seconds


def test_the_last_look_and_the_preview_allow_the_same() -> None:
    """A pod within limit, tolerance and contexts is in no preview, and is spared by the last look."""
    history = settled(LIMITED)
    assert not preview(snapshot([framework(), MEEK], 1.0), LIMITED, history).would
    over = preview(snapshot([framework(context=Context.INCLUDED), MEEK], 1.0), LIMITED, history)
    assert [standing.pod for standing in over.would] == ["framework-1"]


def test_pods_and_claims_count_the_processes_of_all_their_containers() -> None:
    """A pod's limit has the contexts of all its containers, a claim's those of all that share it."""
    one = framework(scope="pod", container="one")
    two = replace(one, container="two", limit=None)
    (case,) = [case for case in cases(snapshot([one, two], 1.0)) if not case.key.container]
    assert case.processes == (*(one.processes or ()), *(two.processes or ()))
    shared = [replace(one, scope="claim", claim="team/c", pod=name) for name in ("x-1", "y-1")]
    (case,) = cases(snapshot(shared, 1.0))
    assert case.processes is not None and len(case.processes) == 2
    beside = replace(shared[0], container="other", claim="", limit=None)
    (case,) = cases(snapshot([*shared, beside], 1.0))
    assert case.processes is not None and len(case.processes) == 2
    hidden = [shared[0], replace(shared[1], processes=None)]
    (case,) = cases(snapshot(hidden, 1.0))
    assert case.processes is None


def test_what_is_allowed_is_said() -> None:
    """An Event names the limit and what is allowed above it, and counts the excess from there."""
    play = Play(LIMITED)
    play.step(framework(used=12 * GIB, processes=(12 * GIB,)))
    text = sentences.exceeded(play.verdicts[-1].standings[0], Trigger.LIMIT)
    assert "3.5 GiB more than its limit of 8 GiB" in text
    assert "plus 512 MiB allowed for CUDA contexts" in text
    play.step(framework(used=12 * GIB, processes=(12 * GIB,), context=Context.INCLUDED))
    assert "CUDA" not in sentences.exceeded(play.verdicts[-1].standings[0], Trigger.LIMIT)
