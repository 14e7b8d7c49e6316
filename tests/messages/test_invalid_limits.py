"""Users hear of limits that cannot be used, once for each change."""

from dataclasses import replace

import builders
from builders import GIB, TAKEN_AT, leaf, pod, snapshot
from enforcer.messages.action_texts import EventReason
from enforcer.messages.invalid_limits import Reported, invalid_limits
from exporter.model import Container, ContainerKind, Limit, Snapshot

POD = pod("train-0", "team-a", uid="uid-1")


def limit(*problems: str, memory: int | None = None, container: str = "main", device: int = 0) -> Limit:
    return builders.limit(POD, leaf(device), memory, container=container, system="hami", problems=problems)


def seen(*limits: Limit, live: bool = True) -> Snapshot:
    return replace(snapshot(pods=[POD], limits=limits), names_live=live)


def test_an_invalid_limit_is_told_once() -> None:
    """In the first round it is seen, with the problem in the user's own words; not in the next."""
    told, (notice,) = invalid_limits(seen(limit("8Gx is no quantity")), {})
    assert (notice.reason, notice.at) == (EventReason.INVALID, TAKEN_AT)
    assert (notice.regarding.namespace, notice.regarding.pod, notice.regarding.container) == (
        "team-a",
        "train-0",
        "main",
    )
    assert notice.note == (
        'GPU memory limit of container "main": no limit applies until this is fixed. 8Gx is no quantity'
    )
    assert invalid_limits(seen(limit("8Gx is no quantity")), told) == (told, ())


def test_another_problem_is_told_and_so_is_one_that_came_back() -> None:
    """Each change has a topic of its own, and so an Event at once. Fixed and broken anew is a change."""
    told, (first,) = invalid_limits(seen(limit("8Gx is no quantity")), {})
    told, (second,) = invalid_limits(seen(limit("8Gy is no quantity")), told)
    assert first.topic != second.topic
    told, notices = invalid_limits(seen(limit(memory=GIB)), told)
    assert (told, notices) == ({}, ())
    told, (third,) = invalid_limits(seen(limit("8Gy is no quantity")), told)
    assert third.topic == second.topic


def test_what_counts_meanwhile_is_said() -> None:
    """A problem beside a limit that counts: the Event shows the amount, once for a container on several devices."""
    first, second = limit("a contradiction", memory=GIB), limit("a contradiction", memory=GIB, device=1)
    _, (notice,) = invalid_limits(seen(first, second), {})
    assert "the limit until this is fixed is 1 GiB per device. a contradiction" in notice.note
    _, (notice,) = invalid_limits(seen(first, replace(second, memory=2 * GIB)), {})
    assert "differs from device to device" in notice.note


def test_a_round_that_does_not_know_tells_nothing_anew() -> None:
    """While names are not live, missing limits do not count as fixed, nor as broken anew when they are back."""
    told, _ = invalid_limits(seen(limit("no quantity")), {})
    away, notices = invalid_limits(seen(live=False), told)
    assert (away, notices) == (told, ())
    assert invalid_limits(seen(limit("no quantity")), away) == (told, ())
    gone: Reported = {}
    assert invalid_limits(seen(), told) == (gone, ())
    assert invalid_limits(seen(limit(memory=GIB), live=False), told) == (gone, ()), "mended, as far as is known"


def test_a_limit_of_an_unknown_pod_waits_for_its_names() -> None:
    """A pod without a name can have no Event. It gets one in the round in which its name is known."""
    told, notices = invalid_limits(replace(seen(limit("no quantity")), pods={}), {})
    assert (told, notices) == ({}, ())
    _, notices = invalid_limits(seen(limit("no quantity")), told)
    assert len(notices) == 1


def test_the_pod_and_each_kind_of_container_is_named_as_what_it_is() -> None:
    """A sidecar stands among the init containers of the spec; a limit of the whole pod names no container."""
    containers = (Container(POD.uid, "proxy", None, ContainerKind.SIDECAR),)
    limits = seen(limit("no quantity", container="proxy"), limit("no quantity", container=""))
    _, (proxy, whole) = invalid_limits(replace(limits, containers=containers), {})
    assert (proxy.regarding.kind, whole.regarding.container) == (ContainerKind.SIDECAR, "")
    assert "limit of the pod: " in whole.note


def test_who_declares_nothing_is_not_warned() -> None:
    """A limit that nothing declares is no mistake of its user: no Event."""
    assert invalid_limits(seen(replace(limit(), undeclared=True)), {}) == ({}, ())
