"""
The container that an action concerns.

What comes in: owners of processes by their cgroups, states of limit holders. What goes out: a container between two
restarts.

The rule: a restarted container is another container, and a contradictory cgroup names none.
"""

from collections.abc import Iterable, Iterator

from enforcer.policy.history import Standing
from enforcer.policy.vocabulary import State
from exporter.model import ContainerId, Owner, PodUid

Victim = tuple[PodUid, ContainerId]
"""One container between two restarts: a restart makes a new id."""

ACCUSED = (State.GRACE, State.DUE, State.HELD, State.ACTING)
"""States from which a signal may follow soon: the inits of these containers are held from then on."""


def accused(standings: Iterable[Standing]) -> Iterator[Victim]:
    """Name the containers that may be signalled soon."""
    for standing in standings:
        if standing.state in ACCUSED and (container := standing.victim) is not None:
            yield standing.limit.pod_uid, container.id  # the key of a claim that several pods share names no pod


def container_of(owner: Owner | None) -> Victim | None:
    """
    Return the container of the outermost pod, because the workload itself can make the cgroups below it.

    None for the host's processes, for sandboxed pods, and where the cgroups contradict one another.
    """
    if owner is None or owner.contradictory:
        return None
    pod_uid, container_id = owner.outermost
    return (pod_uid, container_id) if pod_uid is not None and container_id is not None else None
