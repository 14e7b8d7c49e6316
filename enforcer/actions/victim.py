"""
The container that an action is about.

What comes in: owners of processes by their cgroups, states of limit holders. What goes out: a container in one
generation.

The rule: a restarted container is another one, and a contradictory cgroup names none.
"""

from collections.abc import Iterable, Iterator

from enforcer.policy.history import Standing
from enforcer.policy.vocabulary import State
from exporter.model import ContainerId, Owner, PodUid

Victim = tuple[PodUid, ContainerId]
"""One container in one generation: a restart makes a new id."""

ACCUSED = (State.GRACE, State.DUE, State.HELD, State.ACTING)
"""States from which a signal may follow soon: the inits of these containers are held from then on."""


def accused(standings: Iterable[Standing]) -> Iterator[Victim]:
    """Name the containers that may be signalled soon."""
    for standing in standings:
        if standing.state in ACCUSED and (container := standing.victim) is not None:
            yield standing.key.pod_uid, container.id


def container_of(owner: Owner | None) -> Victim | None:
    """
    Name the container: of the outermost pod, since only what stands below it is the workload's own making.

    None for the host's processes, for sandboxed pods, and where the cgroups contradict one another.
    """
    if owner is None or owner.contradictory:
        return None
    for pod_uid, container_id in owner.pairs:
        if pod_uid is not None:
            return (pod_uid, container_id) if container_id is not None else None
    return None
