"""Promises of exporter/accounts/attribution.py: to what container an entry of the driver's lists belongs."""

from dataclasses import dataclass, field

import pytest

from exporter.accounts.attribution import Attributed, Names, Placed, Sightings, attribute, living_subjects, needs_living
from exporter.model import (
    Attribution,
    Container,
    ContainerId,
    DeviceKey,
    Gpu,
    GpuProcess,
    GpuSample,
    GpuUuid,
    HostProcess,
    HostSample,
    Inventory,
    Memory,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    ProcessKind,
    Subject,
)

GPU = GpuUuid("GPU-0")
DEVICE = DeviceKey(GPU)
TRAIN = PodUid("11111111-1111-1111-1111-111111111111")
OTHER = PodUid("22222222-2222-2222-2222-222222222222")
MAIN, SIDECAR, NESTED = ContainerId("a" * 64), ContainerId("b" * 64), ContainerId("f" * 64)
IN_MAIN, IN_SIDECAR = Owner(((TRAIN, MAIN),)), Owner(((TRAIN, SIDECAR),))
NAMES = Names.of(
    Inventory(
        pods={TRAIN: Pod(TRAIN, "team-a", "train-0"), OTHER: Pod(OTHER, "team-b", "web")},
        containers=(Container(TRAIN, "main", MAIN), Container(TRAIN, "sidecar", SIDECAR)),
        known=True,
        live=True,
    )
)
MAIN_SUBJECT = Subject(TRAIN, "main", MAIN)


def host(*living: tuple[int, int, Owner], dead: tuple[tuple[int, int, Owner], ...] = ()) -> HostSample:
    """A host on which (pid, start, owner) live; `dead` are zombies."""
    processes = {pid: HostProcess(ProcessKey(pid, start), alive=True, owner=owner) for pid, start, owner in living}
    processes |= {pid: HostProcess(ProcessKey(pid, start), alive=False, owner=owner) for pid, start, owner in dead}
    return HostSample(processes, living=frozenset(owner for _, _, owner in living), pid_domain_proven=True)


@dataclass
class Rounds:
    """Feeds rounds to `attribute`, carrying the sightings as the sampler does."""

    sightings: Sightings = field(default_factory=dict)

    def round(self, pids: list[int] | None, answer: HostSample) -> Attributed:
        """One round in which the driver lists `pids`, each with 1000 bytes."""
        kinds = frozenset({ProcessKind.COMPUTE})
        processes = None if pids is None else tuple(GpuProcess(DEVICE, pid, kinds, 1000) for pid in pids)
        sample = GpuSample(Gpu(GPU, 0, "fake", memory=Memory(10_000, 5_000)), 0.0, processes)
        attributed, self.sightings = attribute(sample, answer, NAMES, living_subjects(answer, NAMES), self.sightings)
        return attributed

    def one(self, pid: int, answer: HostSample) -> Placed:
        """One round with one entry; its place."""
        placed = self.round([pid], answer).placed
        assert placed is not None
        return placed[0]


def test_a_living_process_counts_in_its_container() -> None:
    """What lives in a known container's cgroup is that container's, by identity and not by name."""
    placed = Rounds().one(10, host((10, 1, IN_MAIN)))
    assert (placed.attribution, placed.subject) == (Attribution.CONTAINER, MAIN_SUBJECT)
    assert placed.key == ProcessKey(10, 1)


@pytest.mark.parametrize(
    ("owner", "expected"),
    [
        pytest.param(Owner(), Attribution.HOST, id="no container"),
        pytest.param(Owner(((None, NESTED),)), Attribution.HOST, id="a container that no kubelet made"),
        pytest.param(Owner(((None, MAIN),)), MAIN_SUBJECT, id="a sibling in our own pod, seen without its pod"),
        pytest.param(Owner(((PodUid("9" * 32), NESTED),)), Attribution.UNKNOWN_CONTAINER, id="a pod that nobody knows"),
        pytest.param(Owner(((TRAIN, NESTED),)), Subject(TRAIN, "", NESTED), id="known pod, container not known yet"),
        pytest.param(Owner(((TRAIN, None),)), Subject(TRAIN, "", None), id="a sandboxed pod"),
        pytest.param(Owner(((OTHER, MAIN),)), Subject(OTHER, "", MAIN), id="a known id below a foreign pod is not it"),
        pytest.param(Owner(((TRAIN, MAIN), (OTHER, NESTED))), MAIN_SUBJECT, id="a pod imitated further down"),
        pytest.param(Owner(((None, NESTED), (TRAIN, MAIN))), MAIN_SUBJECT, id="a nested node of an older recording"),
        pytest.param(Owner(((TRAIN, MAIN),), contradictory=True), Attribution.CONTRADICTORY, id="contradiction"),
    ],
)
def test_the_outermost_pod_names_the_owner(owner: Owner, expected: Subject | Attribution) -> None:
    """The outermost pod decides, and what is unknown stays unknown."""
    placed = Rounds().one(10, host((10, 1, owner)))
    assert (placed.subject or placed.attribution) == expected


@pytest.mark.parametrize(
    ("owner", "unseen", "anybodys"),
    [
        pytest.param(Owner(((TRAIN, MAIN),)), {MAIN_SUBJECT}, False, id="a container's"),
        pytest.param(Owner(((TRAIN, NESTED),)), {Subject(TRAIN, "", NESTED)}, False, id="of a container not known yet"),
        pytest.param(Owner(((PodUid("9" * 32), NESTED),)), set(), False, id="of a pod that nobody knows"),
        pytest.param(Owner(((None, NESTED),)), set(), False, id="a container that no kubelet made"),
        pytest.param(Owner(contradictory=True), set(), True, id="may be anybody's"),
    ],
)
def test_who_was_not_looked_at_is_named_as_who_was(owner: Owner, unseen: set[Subject], anybodys: bool) -> None:
    """By its cgroup, which is readable where descriptors are not."""
    sample = GpuSample(Gpu(GPU, 0, "fake"), 0.0, (), unseen=(owner,))
    found, _ = attribute(sample, host(), NAMES, (), {})
    assert found.unseen == frozenset(unseen)
    assert found.anybodys is anybodys


def test_a_static_pod_is_found_by_the_hash_in_its_cgroup() -> None:
    """A static pod's cgroup carries the kubelet's hash; its mirror pod's UID is what everything else says."""
    config_hash, uid = PodUid("c" * 32), PodUid("33333333-3333-3333-3333-333333333333")
    names = Names.of(
        Inventory(
            pods={uid: Pod(uid, "kube-system", "etcd", config_hash=config_hash)},
            containers=(Container(uid, "etcd", NESTED),),
        )
    )
    assert names.subject(Owner(((config_hash, NESTED),))) == Subject(uid, "etcd", NESTED)


@pytest.mark.fault(72)
def test_memory_of_a_dead_parent_counts_where_its_child_lives() -> None:
    """The driver keeps charging the dead number; the container whose child holds the memory pays for it."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    placed = rounds.one(10, host((11, 2, IN_MAIN)))
    assert (placed.attribution, placed.subject) == (Attribution.INHERITED, MAIN_SUBJECT)
    assert placed.key is None, "a dead number is never a process"


def test_a_dead_parent_is_not_explained_by_the_sidecar() -> None:
    """Living members of another container of the same pod explain nothing."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN)))
    assert rounds.one(10, host((12, 3, IN_SIDECAR))).attribution is Attribution.GHOST


@pytest.mark.fault(72)
def test_a_dead_number_never_sighted_alive_is_a_ghost() -> None:
    """Without a sighting nothing explains the memory."""
    assert Rounds().one(10, host((11, 2, IN_MAIN))).attribution is Attribution.GHOST


def test_a_zombie_counts_where_its_cgroup_still_says() -> None:
    """On v2 a zombie keeps its path: its container pays while a member lives, and it is no process any more."""
    zombie_and_child = host((11, 2, IN_MAIN), dead=((10, 1, IN_MAIN),))
    placed = Rounds().one(10, zombie_and_child)
    assert (placed.attribution, placed.key) == (Attribution.INHERITED, None)
    alone = host(dead=((10, 1, IN_MAIN),))
    assert Rounds().one(10, alone).attribution is Attribution.GHOST


@pytest.mark.fault(42)
def test_a_reused_number_is_never_charged_to_its_new_process() -> None:
    """The kernel gave the number to a new process while the driver still lists the old memory."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    placed = rounds.one(10, host((10, 99, IN_SIDECAR), (11, 2, IN_MAIN)))
    assert (placed.attribution, placed.subject) == (Attribution.INHERITED, MAIN_SUBJECT)
    placed = rounds.one(10, host((10, 99, IN_SIDECAR)))
    assert placed.attribution is Attribution.GHOST


def test_a_number_first_seen_dead_stays_a_ghost_when_somebody_gets_it() -> None:
    """An entry older than the process of the same number is not that process's."""
    rounds = Rounds()
    rounds.one(10, host())
    assert rounds.one(10, host((10, 5, IN_SIDECAR))).attribution is Attribution.GHOST


@pytest.mark.fault(42)
def test_an_entry_that_was_gone_is_a_new_process() -> None:
    """Once the driver stopped listing a number, a later entry of that number is a fresh sighting."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN)))
    rounds.round([], host())
    assert rounds.one(10, host((10, 99, IN_SIDECAR))).attribution is Attribution.CONTAINER


def test_an_unread_list_keeps_the_sightings_and_places_nothing() -> None:
    """A gap in the lists is no evidence that a process ended."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    assert rounds.round(None, host()).placed is None
    assert rounds.one(10, host((11, 2, IN_MAIN))).attribution is Attribution.INHERITED


def test_a_container_moved_at_its_start_is_read_anew() -> None:
    """crun moves a process right after its start: the newest path of the same process counts."""
    rounds = Rounds()
    assert rounds.one(10, host((10, 1, Owner()))).attribution is Attribution.HOST
    assert rounds.one(10, host((10, 1, IN_MAIN))).subject == MAIN_SUBJECT


@pytest.mark.fault(71)
def test_without_proof_of_the_pid_domain_nothing_is_attributed() -> None:
    """Numbers of another PID namespace mean other processes here."""
    answer = HostSample({10: HostProcess(ProcessKey(10, 1), alive=True, owner=IN_MAIN)}, pid_domain_proven=False)
    placed = Rounds().one(10, answer)
    assert (placed.attribution, placed.subject) == (Attribution.UNPROVEN, None)


UNPROVEN = HostSample(pid_domain_proven=False)
"""What a host says whose /proc was not to be had for a round."""


def test_a_round_without_proof_forgets_nobody() -> None:
    """The holder's memory is where it was, when the proof is back; also after a lasting doubt."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    for _ in range(3):
        assert rounds.one(10, UNPROVEN).attribution is Attribution.UNPROVEN
    placed = rounds.one(10, host((11, 2, IN_MAIN)))
    assert (placed.attribution, placed.subject) == (Attribution.INHERITED, MAIN_SUBJECT)


def test_a_number_that_changed_hands_without_proof_is_nobodys() -> None:
    """Still listed, and another process's by now: neither it nor the container of before pays."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    rounds.one(10, UNPROVEN)
    placed = rounds.one(10, host((10, 99, IN_SIDECAR), (11, 2, IN_MAIN)))
    assert (placed.attribution, placed.subject) == (Attribution.AMBIGUOUS, None)


def test_an_entry_that_went_without_proof_is_somebody_new() -> None:
    """The list is believed where `/proc` is not: a number that left it and comes back inherits nothing."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    rounds.round([], UNPROVEN)
    assert rounds.one(10, host((11, 2, IN_MAIN))).attribution is Attribution.GHOST


def test_numbers_of_an_unproven_driver_are_forgotten() -> None:
    """In such a round a number may be of any PID namespace, and so of another process than the one seen before."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    sample = GpuSample(Gpu(GPU, 0, "fake"), 0.0, (GpuProcess(DEVICE, 10, frozenset(), 1000),), pids_proven=False)
    assert attribute(sample, host((10, 1, IN_MAIN)), NAMES, (), rounds.sightings)[1] == {}


@pytest.mark.fault(33)
def test_an_unreadable_process_is_not_a_ghost() -> None:
    """A process that hides (hidepid) lives; it is unattributed until it can be read."""
    rounds = Rounds()
    hidden = HostSample(unreadable=frozenset({10}), pid_domain_proven=True)
    assert rounds.one(10, hidden).attribution is Attribution.UNREADABLE
    assert rounds.one(10, host((10, 1, IN_MAIN))).attribution is Attribution.CONTAINER


def test_the_living_are_counted_only_when_a_dead_number_needs_them() -> None:
    """Reading the whole of /proc is asked for when a sighted container has to explain a dead number, else never."""
    rounds = Rounds()
    alive = host((10, 1, IN_MAIN))
    attributed = rounds.round([10], alive)
    assert not needs_living([attributed.sample], alive, rounds.sightings)
    assert needs_living([attributed.sample], host(), rounds.sightings)
    assert needs_living([attributed.sample], host((10, 99, IN_SIDECAR)), rounds.sightings)
    assert not needs_living([attributed.sample], host(), {}), "a ghost that nobody saw alive needs no search"
    assert not needs_living([attributed.sample], UNPROVEN, rounds.sightings), "nothing is placed without proof"


def test_a_sighted_process_that_hides_is_unreadable() -> None:
    """Whether a process that was seen and is hidden now is still the same one cannot be said."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN)))
    hidden = HostSample(unreadable=frozenset({10}), pid_domain_proven=True)
    assert rounds.one(10, hidden).attribution is Attribution.UNREADABLE


def test_a_number_that_changed_hands_in_a_gap_is_nobodys() -> None:
    """While the lists could not be read the old memory may have gone: neither the old nor the new process pays."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    rounds.round(None, host())
    placed = rounds.one(10, host((10, 99, IN_SIDECAR), (11, 2, IN_MAIN)))
    assert (placed.attribution, placed.subject) == (Attribution.AMBIGUOUS, None)


def test_a_gap_in_which_nothing_changed_is_forgotten() -> None:
    """The same process after the gap closes it: a later change of hands is judged as ever."""
    rounds = Rounds()
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    rounds.round(None, host())
    rounds.one(10, host((10, 1, IN_MAIN), (11, 2, IN_MAIN)))
    assert rounds.one(10, host((10, 99, IN_SIDECAR), (11, 2, IN_MAIN))).attribution is Attribution.INHERITED


def test_a_workload_in_an_unknown_pod_cannot_rename_itself() -> None:
    """Below a pod that Kubernetes does not know (yet, or any more) nothing is believed, also of older recordings."""
    unknown = (PodUid("9" * 32), NESTED)
    assert NAMES.subject(Owner((unknown, (TRAIN, MAIN)))) is Attribution.UNKNOWN_CONTAINER
    assert NAMES.subject(Owner(((None, NESTED), unknown, (TRAIN, MAIN)))) is Attribution.UNKNOWN_CONTAINER
    assert NAMES.subject(Owner(((None, NESTED), (TRAIN, MAIN)))) == MAIN_SUBJECT
