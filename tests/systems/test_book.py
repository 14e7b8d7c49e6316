"""Each sharing system's pods, played through parsers, accounts, limits and policy, end as the book says."""

from collections.abc import Iterator
from functools import cache
from typing import Any, NamedTuple

import pytest

from enforcer.policy.history import Standing
from enforcer.policy.vocabulary import Kind, Reason, State
from exporter.base.quantities import parse_bytes, parse_duration
from exporter.limits.loading import builtin
from exporter.model import Limit
from systems.book import BEING_BUILT, LimitRow, Role, SceneRow, System, VerdictRow, book
from systems.player import Played, play

INTERVAL = 5.0
SLACK = 2 * INTERVAL
"""Seconds by which an action may come earlier or later than the book says: two rounds."""


class Case(NamedTuple):
    """Expectations of one kind of one scene."""

    system: System
    scene: SceneRow
    rows: list[Any]


def _named(system: System, scene: SceneRow) -> str:
    return f"{system.system}.{scene.mode}" if scene.mode else system.system


def _cases(kind: str) -> Iterator[Any]:
    """List the expectations of a kind, a case for each scene; those that wait for something are a case of their own."""
    for system in book():
        for scene in system.scenes:
            rows: dict[str, list[Any]] = {}
            for row in getattr(scene.expect, kind):
                rows.setdefault(row.needs, []).append(row)
            for need, mine in rows.items():
                name = _named(system, scene)
                yield pytest.param(
                    Case(system, scene, mine),
                    id=f"{name}-{need}" if need else name,
                    marks=[_waiting_for(need)] if need else [],
                )


def _waiting_for(need: str) -> pytest.MarkDecorator:
    return pytest.mark.xfail(reason=f"needs {need}", raises=AssertionError, strict=True)


_SCENES = [pytest.param(scene, system, id=_named(system, scene)) for system in book() for scene in system.scenes]


@cache
def _played(system: str, mode: str) -> Played:
    return play(next(scene for each in book() if each.system == system for scene in each.scenes if scene.mode == mode))


def _of(case: Case) -> Played:
    return _played(case.system.system, case.scene.mode)


@pytest.mark.parametrize("case", list(_cases("sharing")))
def test_each_device_is_shared_as_the_book_says(case: Case) -> None:
    devices = _of(case).devices
    wanted = {(row.gpu, row.mig): (str(row.sharing), row.replicas, row.pods) for row in case.rows}
    found = {key: devices[key] for key in wanted}
    assert wanted == {
        key: (str(device.sharing), device.replicas, None if wanted[key][2] is None else device.pods)
        for key, device in found.items()
    }


@pytest.mark.parametrize("case", list(_cases("limits")))
def test_each_limit_is_what_the_system_declares(case: Case) -> None:
    limits = _of(case).limits
    for row in case.rows:
        key = (row.pod, row.container, row.gpu, row.mig, row.claim)
        if row.absent:
            assert key not in limits
            continue
        assert key in limits, f"no such limit; there are {sorted(map(str, limits))}"
        assert _shown(limits[key], row) == _wanted(case.system, row), key


def _wanted(system: System, row: LimitRow) -> dict[str, object]:
    return {
        "bytes": None if row.bytes is None else parse_bytes(row.bytes),
        "system": row.system or system.system,
        "source": row.source,
        "scope": row.scope,
        "enforced_by": row.enforced_by,
        "context": row.context,
        "report_only": row.report_only,
        "problem": row.problem,
    }


def _shown(limit: Limit, row: LimitRow) -> dict[str, object]:
    return {
        "bytes": limit.memory,
        "system": limit.system,
        "source": limit.source if row.source else None,
        "scope": limit.scope,
        "enforced_by": limit.enforced_by,
        "context": str(getattr(limit, "context", row.context)) if row.context else "",
        "report_only": bool(limit.report_only),
        "problem": bool(limit.problems),
    }


@pytest.mark.parametrize("case", list(_cases("verdicts")))
def test_the_policy_does_about_each_pod_what_the_book_says(case: Case) -> None:
    for row in case.rows:
        _ends(_of(case), row)


def _ends(played: Played, row: VerdictRow) -> None:
    states = _states(played, row)
    acted = [done for (pod, _), done in played.acted.items() if pod == row.pod]
    if row.acts is not None:
        assert acted, f"{row.pod}: no action within {played.seconds:g} s: {_words(states)}"
        assert acted[0].action == row.acts.action, row.pod
        assert abs(acted[0].after - parse_duration(row.acts.after)) <= SLACK, f"{row.pod}: after {acted[0].after:g} s"
        return
    assert not acted, f"{row.pod}: unexpected: {acted}"
    if row.no_limit:
        assert not states, f"{row.pod}: there is a limit: {_words(states)}"
    elif row.within:
        assert states, f"{row.pod}: no limit of the pod is judged"
        assert all(standing.state is State.OK for standing in states), _words(states)
    else:
        assert row.held is not None
        assert row.held.reason in {standing.reason for standing in states}, _words(states)
        assert Reason(row.held.reason).kind == row.held.kind


def _states(played: Played, row: VerdictRow) -> list[Standing]:
    return [
        standing
        for (pod, container), standing in played.states.items()
        if pod == row.pod and row.container in {"", container}
    ]


def _words(states: list[Standing]) -> str:
    return "; ".join(f"{each.container or 'pod'} is {each.state} {each.reason or ''} {each.detail}" for each in states)


@pytest.mark.parametrize(("scene", "system"), _SCENES)
def test_the_book_names_each_device_and_each_limit_of_a_scene(scene: SceneRow, system: System) -> None:
    """An unexpected limit is a surprise for the pod's owner, and a device that is left out proves nothing."""
    played = _played(system.system, scene.mode)
    assert {(row.gpu, row.mig) for row in scene.expect.sharing} == played.devices.keys()
    rows = {(row.pod, row.container, row.gpu, row.mig, row.claim): row for row in scene.expect.limits}
    waiting = {key for key, row in rows.items() if row.needs}
    assert played.limits.keys() - waiting == {key for key, row in rows.items() if not row.absent} - waiting


_SYSTEMS = pytest.mark.parametrize("system", book(), ids=lambda system: system.system)


@_SYSTEMS
def test_each_scene_has_a_pod_above_one_below_and_one_as_users_configure_it(system: System) -> None:
    """A role may be left out with a reason, for example where the hardware lets nothing be above."""
    for scene in system.scenes:
        roles = {row.role for row in scene.expect.verdicts}
        for role in (Role.ABOVE, Role.BELOW, Role.FRAMEWORK):
            assert (role in roles) != (role in scene.without), f"{scene.mode}: {role}: a verdict, or `without`"
        names = {pod["metadata"]["name"] for pod in scene.pods}
        assert {row.pod for row in scene.expect.verdicts} <= names, scene.mode
        assert {row.pod for row in scene.processes if row.pod} <= names, scene.mode


@_SYSTEMS
def test_no_pod_above_its_limit_is_held_for_a_reason_that_nobody_chose(system: System) -> None:
    """A pod that stays above its limit is acted on, or an operator or its own declaration wants that it is not."""
    for scene in system.scenes:
        for row in scene.expect.verdicts:
            if row.role is Role.ABOVE:
                assert row.acts or (row.held and row.held.kind is Kind.CHOSEN), (scene.mode, row.pod)


@_SYSTEMS
def test_each_file_names_its_sources_and_marks_only_what_is_being_built(system: System) -> None:
    assert system.sources
    assert system.system in {known.name for known in builtin()}
    for scene in system.scenes:
        for row in (*scene.expect.sharing, *scene.expect.limits, *scene.expect.verdicts):
            assert row.needs in {"", *BEING_BUILT}


def test_each_system_of_the_catalogue_has_a_scenario() -> None:
    assert {known.name for known in builtin()} <= {system.system for system in book()}
