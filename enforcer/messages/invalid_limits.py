"""
Notices about limits that cannot be used, or not as they were meant.

What comes in: snapshots, and the problems that were reported before. What goes out: notices.

The rule: each change of the problems is reported once, not in every round. A round that does not know a limit neither
ends its problems nor reports them anew.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from hashlib import sha256
from typing import TypeAlias

from enforcer.messages.action_texts import EventReason
from enforcer.messages.events import Notice, Regarding
from enforcer.messages.sentences import who
from enforcer.policy.history import Standing
from enforcer.policy.vocabulary import Mode
from exporter.limits.explaining import size
from exporter.model import ContainerKind, Limit, PodUid, Snapshot

Reported: TypeAlias = Mapping[tuple[PodUid, str], tuple[str, ...]]
"""Reported problems of the limits of (pod, container; empty for the whole pod)."""


def invalid_limits(
    snapshot: Snapshot, before: Reported, standings: Iterable[Standing] = ()
) -> tuple[Reported, tuple[Notice, ...]]:
    """
    Report limits that cannot be used, or not as they were meant: once for each change of their problems.

    A container whose limits are not known in this round, because names are not live, is as it was. A namespace whose
    own mode is below `warn` gets no notice.
    """
    quiet = {standing.namespace for standing in standings if standing.mode.rank < Mode.WARN.rank}
    limits_of: dict[tuple[PodUid, str], list[Limit]] = defaultdict(list)
    for limit in snapshot.limits:
        pod = snapshot.pods.get(limit.pod_uid)
        if pod is not None and pod.namespace not in quiet:
            limits_of[limit.pod_uid, limit.container].append(limit)
    kinds = {(container.pod_uid, container.name): container.kind for container in snapshot.containers}
    now = {} if snapshot.names_live else dict(before)
    notices = []
    for (uid, container), limits in limits_of.items():
        problems = tuple(dict.fromkeys(problem for limit in limits for problem in limit.problems))
        if problems:
            if before.get((uid, container)) != problems:
                pod, kind = snapshot.pods[uid], kinds.get((uid, container), ContainerKind.REGULAR)
                regarding = Regarding(pod.namespace, pod.name, uid, container, kind)
                topic = sha256("\n".join(problems).encode("utf-8", "backslashreplace")).hexdigest()[:16]
                note = _invalid(container, limits, problems)
                notices.append(Notice(regarding, EventReason.INVALID, note, snapshot.taken_at, topic))
            now[uid, container] = problems
        else:
            now.pop((uid, container), None)
    return now, tuple(notices)


def _invalid(container: str, limits: Iterable[Limit], problems: Iterable[str]) -> str:
    amounts = {limit.memory for limit in limits}
    if amounts == {None}:
        following = "No limit applies until this is fixed"
    elif len(amounts) == 1:
        following = f"The limit until this is fixed is {size(amounts.pop())} per device"
    else:
        following = "The limit until this is fixed differs from device to device"
    # The problems come last: they quote what users wrote, and are what a long note is cut of.
    return f"GPU memory limit of {who(container)}: {following[0].lower()}{following[1:]}. {'; '.join(problems)}"
