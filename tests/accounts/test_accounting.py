"""Promises of exporter/accounts/accounting.py. Law 2: the accounts close."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.accounts.accounting import TOLERANCE, account, new_peaks
from exporter.accounts.attribution import Attributed, Placed
from exporter.model import (
    Attribution,
    CgroupMemory,
    ContainerId,
    DeviceKey,
    Gpu,
    GpuInstance,
    GpuProcess,
    GpuSample,
    GpuUuid,
    Memory,
    Owner,
    PodUid,
    ProcessKey,
    ProcessKind,
    ProcessUtilization,
    Subject,
    Utilization,
)

UUID = GpuUuid("GPU-0")
DEVICE = DeviceKey(UUID)
A = Subject(PodUid("a"), "main", ContainerId("a" * 64))
B = Subject(PodUid("b"), "main", ContainerId("b" * 64))
GIB = 2**30


def placed(
    pid: int,
    memory: int | None,
    subject: Subject | None = A,
    attribution: Attribution = Attribution.CONTAINER,
    device: DeviceKey = DEVICE,
) -> Placed:
    """One entry at its place."""
    key = ProcessKey(pid, 1) if attribution is Attribution.CONTAINER else None
    return Placed(GpuProcess(device, pid, frozenset({ProcessKind.COMPUTE}), memory), attribution, subject, key)


def attributed(
    *entries: Placed,
    memory: Memory | None = Memory(80 * GIB, 79 * GIB),
    utilization: tuple[ProcessUtilization, ...] | None = None,
) -> Attributed:
    """A GPU with MIG off and these entries."""
    return Attributed(GpuSample(Gpu(UUID, 0, "fake", memory=memory), 0.0, (), utilization), entries)


def used(amount: int, reserved: int = 0) -> Memory:
    """Memory of which `amount` is used."""
    return Memory(80 * GIB, 80 * GIB - amount - reserved, reserved)


def counted(subject: Subject, amount: int, **words: int) -> dict[tuple[Subject, DeviceKey], CgroupMemory]:
    """What the kernel counts of a container's cgroup."""
    return {(subject, DEVICE): CgroupMemory(Owner(), DEVICE, amount, **words)}


def test_what_the_kernel_counts_stands_in_place_of_the_processes() -> None:
    """One container's cgroup is counted, the other's processes are: the accounts close over both."""
    both = replace(attributed(placed(1, GIB), placed(2, 2 * GIB, B), memory=used(8 * GIB)), counted=counted(A, 3 * GIB))
    found = account(both, {})
    assert {usage.subject: usage.memory_used for usage in found.usages} == {A: 3 * GIB, B: 2 * GIB}
    (one,) = found.accounts
    assert (one.attributed, one.unattributed, one.closes) == (5 * GIB, 3 * GIB, True)


@pytest.mark.parametrize("count", [0, 2 * GIB])
def test_what_the_kernel_counts_is_believed_where_it_is_less_no_more(count: int) -> None:
    """
    Buffers that were placed before the controller was enabled are charged elsewhere: the lists count, with a fault.

    The bytes of the smaller count are sure, and no more. A limit that the kernel keeps still counts.
    """
    late = replace(
        attributed(placed(1, 5 * GIB), placed(2, GIB, B), memory=used(8 * GIB)),
        counted=counted(A, count, limit=4 * GIB) | counted(B, GIB - TOLERANCE),
    )
    found = account(late, {})
    assert {u.subject: (u.memory_used, u.memory_sure, u.memory_peak, u.kernel_limit) for u in found.usages} == {
        A: (5 * GIB, count, 5 * GIB, 4 * GIB),
        B: (GIB - TOLERANCE, None, GIB - TOLERANCE, None),
    }
    (one,) = found.accounts
    assert (one.attributed, one.unattributed) == (6 * GIB - TOLERANCE, 2 * GIB + TOLERANCE)
    (fault,) = found.attributed.sample.faults
    assert (fault.reason, fault.subject, fault.incomplete) == ("dmem_short", UUID, False)
    assert "1 container " in fault.message


@pytest.mark.parametrize(
    "nobodys", [Attribution.GHOST, Attribution.UNREADABLE, Attribution.AMBIGUOUS, Attribution.CONTRADICTORY]
)
def test_what_the_kernel_counts_is_not_counted_again_for_a_process_of_no_container(nobodys: Attribution) -> None:
    """
    A counted container forked, and its parent is gone: the count has the child's memory, so no ghost has it, too.

    The same holds for a process of the container that cannot be read.
    """
    entries = (placed(1, 20 * GIB, None, nobodys), placed(2, 40 * GIB, B))
    forked = replace(attributed(*entries, memory=used(60 * GIB)), counted=counted(A, 20 * GIB))
    (one,) = account(forked, {}).accounts
    assert (one.closes, one.attributed, one.ghost, one.unattributed) == (True, 60 * GIB, 0, 0)


@pytest.mark.fault(31)
@pytest.mark.parametrize("nobodys", [Attribution.GHOST, Attribution.UNREADABLE])
def test_only_what_the_kernel_counts_beyond_the_lists_explains_a_process_of_no_container(nobodys: Attribution) -> None:
    """The counted container's own processes hold 15 of its 20 GiB. A stranger with 20 GiB is no part of the other 5."""
    entries = (placed(1, 15 * GIB), placed(2, 40 * GIB, B), placed(3, 20 * GIB, None, nobodys))
    doubled = replace(attributed(*entries, memory=used(60 * GIB)), counted=counted(A, 20 * GIB))
    (one,) = account(doubled, {}).accounts
    assert (one.closes, one.ghost) == (False, 15 * GIB if nobodys is Attribution.GHOST else 0)


@pytest.mark.fault(31)
def test_what_the_kernel_counts_does_not_explain_a_process_of_the_host() -> None:
    """A process outside of all pods is charged to no container's cgroup: the lists are wrong."""
    entries = (placed(1, 20 * GIB, None, Attribution.HOST), placed(2, 40 * GIB, B))
    doubled = replace(attributed(*entries, memory=used(60 * GIB)), counted=counted(A, 20 * GIB))
    (one,) = account(doubled, {}).accounts
    assert (one.closes, one.host) == (False, 20 * GIB)


def test_a_ghost_beside_what_the_kernel_counts_stays_where_the_device_has_room_for_both() -> None:
    """Nothing contradicts it: the ghost may be of a container that the kernel does not count."""
    entries = (placed(1, 20 * GIB, None, Attribution.GHOST),)
    both = replace(attributed(*entries, memory=used(45 * GIB)), counted=counted(A, 20 * GIB))
    (one,) = account(both, {}).accounts
    assert (one.attributed, one.ghost, one.unattributed) == (20 * GIB, 20 * GIB, 5 * GIB)


def test_a_container_of_unknown_memory_makes_no_ghost_of_what_the_kernel_counts() -> None:
    """What a third container holds is not known in full. What is known leaves no room for the ghost all the same."""
    other = replace(B, pod_uid=PodUid("c"))
    entries = (
        placed(1, 20 * GIB, None, Attribution.GHOST),
        placed(2, 30 * GIB, B),
        placed(3, 10 * GIB, other),
        placed(4, None, other),
    )
    forked = replace(attributed(*entries, memory=used(60 * GIB)), counted=counted(A, 20 * GIB))
    (one,) = account(forked, {}).accounts
    assert (one.attributed, one.ghost, one.unattributed) == (None, 0, None)


def test_what_others_may_hold_too_doubts_no_count() -> None:
    """Shared buffers are in each process that has them, and once in the kernel's count: only what is sure counts."""
    shared = placed(1, 5 * GIB)
    shared = replace(shared, process=replace(shared.process, memory_sure=GIB))
    found = account(replace(attributed(shared, placed(2, None)), counted=counted(A, 2 * GIB)), {})
    assert [usage.memory_used for usage in found.usages] == [2 * GIB]
    assert found.attributed.sample.faults == ()


def test_a_container_of_which_a_process_was_not_looked_at_is_unknown() -> None:
    """Whatever its other processes hold, and in the account, too; the number of its processes is not known either."""
    entries = (placed(1, 5 * GIB), placed(2, 2 * GIB, B))
    hidden = replace(attributed(*entries, memory=used(8 * GIB)), unseen=frozenset({A}))
    found = account(hidden, {(A, DEVICE): 6 * GIB}, {DEVICE: {A, B}})
    assert {u.subject: (u.memory_used, u.memory_peak, u.listed) for u in found.usages} == {
        A: (None, 6 * GIB, False),
        B: (2 * GIB, 2 * GIB, True),
    }
    (one,) = found.accounts
    assert (one.attributed, one.unattributed, one.host) == (None, None, 0)


def test_a_process_that_was_not_looked_at_costs_nobody_who_has_no_part_in_the_device() -> None:
    """Its container was not handed this one, and has no process there: no figure is made up, and none is taken."""
    hidden = replace(attributed(placed(2, 2 * GIB, B), memory=used(8 * GIB)), unseen=frozenset({A}))
    found = account(hidden, {}, {DEVICE: {B}})
    assert [(usage.subject, usage.memory_used) for usage in found.usages] == [(B, 2 * GIB)]
    assert found.accounts[0].unattributed == 6 * GIB


def test_a_process_of_an_unknown_container_of_a_pod_may_be_in_any_of_them() -> None:
    """A status that lags behind: the pod is known, which of its containers is not."""
    hidden = replace(attributed(), unseen=frozenset({replace(A, container="", container_id=None)}))
    found = account(hidden, {}, {DEVICE: {A, B}})
    assert {usage.subject: usage.memory_used for usage in found.usages} == {A: None, B: 0}


def test_what_the_kernel_counts_needs_nobody_looked_at() -> None:
    """Its bytes stand; by how many processes they are held is not known."""
    hidden = replace(attributed(), unseen=frozenset({A}), counted=counted(A, GIB))
    found = account(hidden, {})
    assert [(usage.memory_used, usage.listed) for usage in found.usages] == [(GIB, False)]
    assert found.accounts[0].attributed == GIB


@pytest.mark.parametrize("why", ["partial", "anybodys"])
def test_who_is_in_no_list_holds_nothing_only_where_lists_have_everybody(why: str) -> None:
    """
    If lists cover one use of a GPU only, or a process may be of any container, a container without an entry is unknown.

    A listed container holds what its entries say, or more.
    """
    one = attributed(placed(1, 5 * GIB), memory=used(8 * GIB))
    one = replace(one, anybodys=True) if why == "anybodys" else replace(one, sample=replace(one.sample, partial=True))
    found = account(one, {}, {DEVICE: {A, B}})
    assert {usage.subject: (usage.memory_used, usage.listed) for usage in found.usages} == {
        A: (5 * GIB, True),
        B: (None, False),
    }
    assert (found.accounts[0].attributed, found.accounts[0].unattributed) == (5 * GIB, 3 * GIB)


def test_what_the_kernel_counts_makes_an_unknown_process_known() -> None:
    """A process of unknown memory does not hide its container's count. Limit and peak come with the count."""
    unknown = replace(attributed(placed(1, None)), counted=counted(A, GIB, limit=4 * GIB, peak=2 * GIB))
    (usage,) = account(unknown, {}).usages
    assert (usage.memory_used, usage.memory_peak, usage.kernel_limit, usage.memory_sure) == (
        GIB,
        2 * GIB,
        4 * GIB,
        None,
    )


def test_what_the_kernel_counts_is_told_without_processes() -> None:
    """The lists could not be read: a container with counted bytes is reported all the same, one with none is not."""
    sample = replace(attributed(), placed=None, counted={**counted(A, GIB), **counted(B, 0)})
    found = account(sample, {})
    (usage,) = found.usages
    assert (usage.subject, usage.memory_used, usage.listed) == (A, GIB, False)
    assert found.accounts[0].attributed is None, "containers without a count may hold more"


def test_what_is_surely_a_containers_own() -> None:
    """Shared buffers are part of its usage, not of what is surely its own. Without any that figure is absent."""
    shared = placed(1, 3 * GIB)
    shared = replace(shared, process=replace(shared.process, memory_sure=GIB))
    (usage,) = account(attributed(shared, placed(2, GIB)), {}).usages
    assert (usage.memory_used, usage.memory_sure) == (4 * GIB, 2 * GIB)
    nothing = replace(shared, process=replace(shared.process, memory_sure=0))
    (usage,) = account(attributed(nothing), {}).usages
    assert (usage.memory_used, usage.memory_sure) == (3 * GIB, 0)
    (usage,) = account(attributed(placed(2, GIB)), {}).usages
    assert usage.memory_sure is None


def test_what_is_measured_of_a_container_is_surely_its_own_where_another_process_is_unknown() -> None:
    """A process that is not measured, or was not looked at, hides no other one. Without any nothing is sure."""
    (usage,) = account(attributed(placed(1, 3 * GIB), placed(2, None)), {}).usages
    assert (usage.memory_used, usage.memory_sure) == (None, 3 * GIB)
    hidden = replace(attributed(placed(1, 5 * GIB)), unseen=frozenset({A, B}))
    found = account(hidden, {}, {DEVICE: {A, B}})
    assert {u.subject: (u.memory_used, u.memory_sure) for u in found.usages} == {A: (None, 5 * GIB), B: (None, None)}


def test_a_share_of_the_engines_that_one_process_does_not_tell() -> None:
    """Unknown of one process is unknown of the container, figure by figure. A process without a sample is idle."""
    told = (ProcessUtilization(1, 0.5, None, 0.25, None), ProcessUtilization(2, None, None, 0.25, None))
    (usage,) = account(attributed(placed(1, GIB), placed(2, GIB), utilization=told), {}).usages
    assert (usage.sm, usage.encoder, usage.decoder) == (None, 0.5, None)


parts = st.lists(
    st.tuples(st.sampled_from([a for a in Attribution if a is not Attribution.UNPROVEN]), st.integers(0, 10 * GIB)),
    max_size=12,
)


@given(parts=parts, rest=st.integers(0, 10 * GIB), reserved=st.integers(0, GIB))
def test_law_2_the_accounts_close(parts: list[tuple[Attribution, int]], rest: int, reserved: int) -> None:
    """Attributed + ghost + host + unattributed = used, however the memory is divided."""
    with_subject = {Attribution.CONTAINER, Attribution.INHERITED}
    entries = [
        placed(pid, memory, A if attribution in with_subject else None, attribution)
        for pid, (attribution, memory) in enumerate(parts)
    ]
    total = sum(memory for _, memory in parts) + rest
    capacity = total + reserved + GIB
    memory = Memory(capacity, capacity - total - reserved, reserved)
    result = account(attributed(*entries, memory=memory), {}).accounts[0]
    assert result.closes
    assert result.attributed is not None and result.ghost is not None
    assert result.host is not None and result.unattributed is not None
    assert result.attributed + result.ghost + result.host + result.unattributed == memory.used
    assert result.attributed == sum(m for a, m in parts if a in with_subject)


def test_lists_slightly_above_the_device_are_taken_as_zero_rest() -> None:
    """The reads are not atomic: up to 64 MiB too much is no contradiction, and is reported."""
    result = account(attributed(placed(1, GIB + TOLERANCE), memory=used(GIB)), {}).accounts[0]
    assert (result.closes, result.unattributed, result.clamped) == (True, 0, TOLERANCE)


@pytest.mark.fault(31)
def test_lists_far_above_the_device_do_not_close() -> None:
    """Beyond the tolerance the account says so, and names no rest."""
    result = account(attributed(placed(1, GIB + TOLERANCE + 1), memory=used(GIB)), {}).accounts[0]
    assert (result.closes, result.unattributed) == (False, None)


@pytest.mark.fault(33)
def test_unattributed_entries_must_fit_into_the_rest() -> None:
    """A process without a known container is part of the unattributed memory, not an addition to it."""
    hidden = placed(2, GIB, None, Attribution.UNKNOWN_CONTAINER)
    result = account(attributed(placed(1, GIB), hidden, memory=used(2 * GIB)), {}).accounts[0]
    assert (result.closes, result.unattributed) == (True, GIB)
    result = account(attributed(placed(1, GIB), hidden, memory=used(GIB)), {}).accounts[0]
    assert not result.closes


@pytest.mark.fault(26)
def test_one_unknown_process_makes_its_container_unknown_and_no_other() -> None:
    """Not available is not zero: the container's sum is unknown, and so is the rest. Its neighbour's sum is known."""
    result = account(attributed(placed(1, None), placed(2, 5, A), placed(3, 7, B), memory=used(GIB)), {})
    assert {usage.subject: usage.memory_used for usage in result.usages} == {A: None, B: 7}
    assert (result.accounts[0].attributed, result.accounts[0].unattributed) == (None, None)
    assert result.accounts[0].ghost == 0


def test_without_device_memory_the_lists_still_count() -> None:
    """GB10 has no framebuffer of its own: containers are known, the rest is not."""
    result = account(attributed(placed(1, 5), memory=None), {})
    assert result.usages[0].memory_used == 5
    assert result.accounts[0].attributed == 5
    assert result.accounts[0].unattributed is None


def test_unread_lists_make_everything_but_device_memory_unknown() -> None:
    """No list, no usage, no account: the device's own memory stays."""
    sample = attributed().sample
    result = account(Attributed(sample, None), {})
    assert result.usages == ()
    assert (result.accounts[0].memory, result.accounts[0].attributed) == (sample.gpu.memory, None)


def test_processes_of_one_container_add_up() -> None:
    """Several processes, and a dead parent's memory, are one usage."""
    dead = placed(3, 40, A, Attribution.INHERITED)
    usage = account(attributed(placed(1, 10), placed(2, 20), dead, memory=used(GIB)), {}).usages[0]
    assert usage.memory_used == 70
    assert usage.processes == {ProcessKey(1, 1), ProcessKey(2, 1)}


@pytest.mark.parametrize("attribution", [Attribution.CONTAINER, Attribution.INHERITED])
def test_a_container_with_a_process_in_the_mps_list_is_a_client(attribution: Attribution) -> None:
    """One of its processes suffices, also one that has ended and whose child holds the memory."""
    client = placed(3, 40, A, attribution)
    client = replace(client, process=replace(client.process, kinds=frozenset(ProcessKind)))
    usages = account(attributed(placed(1, 10), client, placed(2, 20, B), memory=used(GIB)), {}).usages
    assert {usage.subject: usage.mps for usage in usages} == {A: True, B: False}


def test_a_client_of_which_a_process_is_unknown_is_a_client() -> None:
    """How much it holds is unknown; that it is a client is not."""
    client = placed(3, 40)
    client = replace(client, process=replace(client.process, kinds=frozenset({ProcessKind.MPS})))
    seen = replace(attributed(client, memory=used(GIB)), unseen=frozenset({A}))
    assert [(usage.memory_used, usage.mps) for usage in account(seen, {}).usages] == [(None, True)]


def test_an_allocated_container_without_processes_holds_zero() -> None:
    """The lists were read and are empty: its usage is known, so it is 0 and not absent."""
    usage = account(attributed(), {}, allocated={DEVICE: [A]}).usages[0]
    assert (usage.memory_used, usage.processes) == (0, frozenset())


@pytest.mark.fault(35)
@pytest.mark.parametrize("container_id", [None, ContainerId("d" * 64)])
def test_next_to_a_process_of_its_pod_no_container_is_known_to_hold_nothing(container_id: ContainerId | None) -> None:
    """
    A sandboxed pod, or a status that lags behind a start: the container that was handed the device is unknown, not 0.

    Containers of other pods are known, and one with processes of its own. The accounts close.
    """
    pod, side = Subject(A.pod_uid, "", container_id), replace(A, container="side", container_id=ContainerId("e" * 64))
    entries = (placed(1, 40 * GIB, pod), placed(2, 5 * GIB, side))
    found = account(attributed(*entries, memory=used(45 * GIB), utilization=()), {}, {DEVICE: [A, B, side]})
    assert {usage.subject: (usage.memory_used, usage.sm, usage.listed, usage.with_pod) for usage in found.usages} == {
        A: (None, None, False, True),
        B: (0, 0.0, True, False),
        pod: (40 * GIB, 0.0, True, False),
        side: (5 * GIB, 0.0, True, False),
    }
    (one,) = found.accounts
    assert (one.attributed, one.unattributed) == (45 * GIB, 0)


def test_a_process_of_a_pod_elsewhere_hides_nothing_here() -> None:
    """Devices apart: on this one the pod has no process."""
    one, two = DeviceKey(UUID, 1), DeviceKey(UUID, 2)
    instances = tuple(GpuInstance(key.gpu_instance or 0, "", (), Memory(GIB, GIB)) for key in (one, two))
    sample = GpuSample(Gpu(UUID, 0, "fake", mig=True, instances=instances), 0.0, ())
    pod = replace(A, container="", container_id=None)
    found = account(Attributed(sample, (placed(1, 1, pod, device=two),)), {}, {one: [A]})
    assert {(usage.subject, usage.device): usage.memory_used for usage in found.usages} == {(A, one): 0, (pod, two): 1}


def test_instances_of_one_gpu_have_accounts_of_their_own() -> None:
    """Under MIG memory is counted per GPU instance, and NVML's per-process statistics say nothing about them."""
    one, two = DeviceKey(UUID, 1), DeviceKey(UUID, 2)
    instances = (
        GpuInstance(1, "1g.10gb", ("MIG-1",), Memory(10, 4)),
        GpuInstance(2, "1g.10gb", ("MIG-2",), Memory(10, 10)),
    )
    gpu = Gpu(UUID, 0, "fake", mig=True, memory=Memory(80, 60), instances=instances)
    sample = GpuSample(gpu, 0.0, (), utilization=())
    result = account(Attributed(sample, (placed(1, 6, device=one),)), {})
    assert {a.device: (a.attributed, a.unattributed) for a in result.accounts} == {one: (6, 0), two: (0, 0)}
    assert [(usage.device, usage.sm) for usage in result.usages] == [(one, None)]


def _busy(pid: int, sm: float) -> ProcessUtilization:
    return ProcessUtilization(pid, sm, 0.0, 0.25, 0.0)


def test_sm_is_the_sum_of_the_containers_processes_capped() -> None:
    """Samples name one owner each, so that sums above 100 % are an artefact: cut, and counted."""
    result = account(attributed(placed(1, 1), placed(2, 1), utilization=(_busy(1, 0.7), _busy(2, 0.6))), {})
    assert (result.usages[0].sm, result.usages[0].encoder, result.capped) == (1.0, 0.5, 1)


def test_sm_without_a_sample_is_zero_only_when_the_driver_answered() -> None:
    """No news from a driver that answers is idleness; no answer is no figure."""
    assert account(attributed(placed(1, 1), utilization=()), {}).usages[0].sm == 0.0
    assert account(attributed(placed(1, 1), utilization=None), {}).usages[0].sm is None


def test_sm_finds_a_process_listed_under_a_thread() -> None:
    """Some drivers list a thread's number and sample the process's: the key's pid joins the two."""
    thread = Placed(GpuProcess(DEVICE, 77, frozenset(), 1), Attribution.CONTAINER, A, ProcessKey(70, 1))
    assert account(attributed(thread, utilization=(_busy(70, 0.5),)), {}).usages[0].sm == 0.5


def test_the_peak_is_the_most_ever_seen_of_this_generation() -> None:
    """Peaks outlive a pause, and end with the container."""
    first = account(attributed(placed(1, 100)), {})
    peaks = new_peaks({}, first.usages, {A.container_id} if A.container_id else set())
    later = account(attributed(placed(1, 30)), peaks)
    assert later.usages[0].memory_peak == 100
    paused = new_peaks(peaks, (), {ContainerId("a" * 64)})
    assert account(attributed(placed(1, 30)), paused).usages[0].memory_peak == 100
    assert new_peaks(peaks, (), set()) == {}
    assert new_peaks(peaks, (), None) == peaks, "names that are not live say of nobody that he is gone"


def test_the_sole_holder_of_an_instance_gets_the_instances_sm() -> None:
    """Under MIG there are no statistics of processes: a sole holder has the instance's figure, others have none."""
    device = DeviceKey(UUID, 1)
    instance = GpuInstance(1, "1g.10gb", ("MIG-1",), Memory(10 * GIB, 5 * GIB), Utilization(sm=0.75))
    sample = GpuSample(Gpu(UUID, 0, "fake", mig=True, instances=(instance,)), 0.0, ())
    alone = placed(1, 1, device=device)
    stranger = placed(2, 1, None, Attribution.HOST, device)
    neighbour = placed(3, 1, B, device=device)
    for entries, expected in (((alone,), 0.75), ((alone, stranger), None), ((alone, neighbour), None)):
        usages = account(Attributed(sample, entries), {}).usages
        assert {usage.sm for usage in usages} == {expected}
    half = replace(sample, partial=True)
    assert account(Attributed(half, (alone,)), {}).usages[0].sm is None, "others may be in no list"
    pod = placed(1, 1, replace(A, container="", container_id=None), device=device)
    usages = account(Attributed(sample, (pod,)), {}, {device: [A]}).usages
    assert {usage.subject.container: usage.sm for usage in usages} == {"": 0.75, "main": None}, "a sandboxed pod"


@pytest.mark.parametrize("doubt", [Attribution.UNREADABLE, Attribution.CONTRADICTORY, Attribution.AMBIGUOUS])
def test_next_to_a_process_that_may_be_anybodys_nobody_is_known_to_hold_nothing(doubt: Attribution) -> None:
    """The hidden process may be the idle container's: its usage is unknown, not 0. A measured container stays so."""
    entries = (placed(1, 5, A), placed(2, GIB, None, doubt))
    result = account(attributed(*entries, memory=used(2 * GIB), utilization=()), {}, allocated={DEVICE: [A, B]})
    idle = next(usage for usage in result.usages if usage.subject == B)
    assert (idle.memory_used, idle.memory_peak, idle.sm, idle.encoder) == (None, None, None, None)
    assert next(usage for usage in result.usages if usage.subject == A).memory_used == 5


def test_without_proof_of_the_pid_domain_the_account_is_unknown() -> None:
    """No process was attributed, which is not the same as 0 bytes attributed. The device's own memory stays known."""
    entry = placed(1, GIB, None, Attribution.UNPROVEN)
    result = account(attributed(entry, memory=used(GIB)), {}, allocated={DEVICE: [A]})
    found = result.accounts[0]
    assert (found.attributed, found.ghost, found.host, found.unattributed) == (None, None, None, None)
    assert found.memory == used(GIB)
    assert [usage.memory_used for usage in result.usages] == [None]


def test_encoder_sums_are_cut_at_one() -> None:
    """Sums of samples above 100 % are an artefact for the encoder, too."""
    entries = tuple(placed(pid, 1) for pid in range(1, 7))
    result = account(attributed(*entries, utilization=tuple(_busy(pid, 0.1) for pid in range(1, 7))), {})
    assert result.usages[0].encoder == 1.0
