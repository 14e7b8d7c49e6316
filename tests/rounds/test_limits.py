"""Promises of exporter/rounds/limits.py: which pod is resolved when, and on which device a limit counts."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from builders import GIB, MIB, allocation, gpu, leaf, limit, memory, pod, snapshot, subject, usage
from exporter.config import Policy, tolerance_of
from exporter.limits import Options
from exporter.limits.loading import builtin, with_own
from exporter.model import (
    ClaimUsage,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    Gpu,
    Inventory,
    NodeFacts,
    Pod,
    Sharing,
    Usage,
)
from exporter.rounds import first_seen_file
from exporter.rounds.limit_facts import with_claims
from exporter.rounds.limits import MOST, Limiting, Limits

LIMIT = "nvidia.com/container.main.gpu-memory.limit"
TOLERANCE = tolerance_of(Policy())
GPUS = (gpu(0, memory=memory()), gpu(1, memory=memory()))
OURS = tuple(system for system in builtin() if system.name == "gpusteward")
"""For tests that count pods: to ask 52 systems about 50 pods in each round takes 0.1 s, and changes no count."""
assert OURS
SLICED = {leaf(index): (Sharing.TIME_SLICING, 4) for index in (0, 1)}
NODE = NodeFacts({"nvidia.com/gpu": "8"}, labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"})


def declares(who: Pod, annotations: Mapping[str, str] | None = None, *containers: str) -> DeclaredPod:
    made = tuple(DeclaredContainer(name, {"nvidia.com/gpu": "1"}) for name in containers or ("main",))
    return DeclaredPod(who.uid, who.namespace, who.name, annotations=annotations or {}, containers=made)


def inventory(*pods: tuple[Pod, DeclaredPod], held: Mapping[str, DeviceKey] | None = None) -> Inventory:
    """Make an inventory of a time-sliced node; `held`: pod name to the device that its container was handed."""
    named = {who.name: who for who, _ in pods}
    return Inventory(
        pods={who.uid: who for who, _ in pods},
        declared={who.uid: declared for who, declared in pods},
        allocations=tuple(allocation(named[name], where) for name, where in (held or {}).items()),
        sharing=SLICED,
        node=NODE,
        known=True,
        live=True,
    )


def rounds(
    keeps: Limiting, facts: Inventory, usages: Iterable[Usage] = (), gpus: Iterable[Gpu] = GPUS
) -> tuple[int, Limits]:
    """Do what a round does: the number of pods that were resolved, and the limits."""
    resolved = sum(1 for _ in keeps.refresh(facts, gpus, [each.uuid for each in GPUS]))
    return resolved, keeps.limits(facts, usages)


def amounts(found: Limits) -> dict[tuple[str, DeviceKey], int | None]:
    return {(limit.pod_uid, limit.device): limit.memory for limit in found.limits if limit.container == "main"}


def test_a_pod_is_resolved_when_something_has_changed_and_else_not() -> None:
    """A changed annotation costs one pod, a changed node all; a round in which nothing changed costs nothing."""
    a, b = pod("a"), pod("b")
    keeps = Limiting(builtin())
    one = inventory((a, declares(a, {LIMIT: "8Gi"})), (b, declares(b)))
    assert [rounds(keeps, one)[0] for _ in range(3)] == [2, 0, 0]
    two = inventory((a, declares(a, {LIMIT: "4Gi"})), (b, declares(b)))
    assert [rounds(keeps, two)[0] for _ in range(2)] == [1, 0]
    assert rounds(keeps, replace(two, node=NodeFacts({"nvidia.com/gpu": "7"})))[0] == 2


def test_a_limit_that_names_no_device_is_where_its_container_is() -> None:
    """An annotation counts on the GPU that was handed out, and on no other; its sum is declared there."""
    a = pod("a")
    facts = inventory((a, declares(a, {LIMIT: "8Gi"})), held={"a": leaf(1)})
    _, found = rounds(Limiting(builtin()), facts, [usage(a, leaf(1), 0)])
    assert amounts(found) == {(a.uid, leaf(1)): 8 * GIB}
    assert found.memory_declared == {leaf(1): 8 * GIB}


def test_a_container_is_not_undeclared_where_its_pod_declares_an_amount() -> None:
    """KubeShare writes the pod's amount and the container's NVIDIA_VISIBLE_DEVICES: there is one limit, the pod's."""
    shared, plain = pod("a"), pod("b")
    annotations = {"sharedgpu/gpu_mem": str(8 * GIB), "sharedgpu/gpu_uuid": GPUS[1].uuid}
    containers = (DeclaredContainer("main", env={"NVIDIA_VISIBLE_DEVICES": GPUS[1].uuid}),)
    facts = inventory(
        (shared, replace(declares(shared, annotations), containers=containers)),
        (plain, replace(declares(plain), containers=containers)),
    )
    _, found = rounds(Limiting(builtin()), facts, [usage(shared, leaf(1), 0), usage(plain, leaf(1), 0)])
    limits = {(limit.pod_uid, limit.container, limit.device): limit.memory for limit in found.limits}
    assert limits == {(shared.uid, "", leaf(1)): 8 * GIB, (plain.uid, "main", leaf(1)): None}


def test_a_limit_is_for_the_gpus_of_its_systems_vendor() -> None:
    """A pod on GPUs of two vendors: what it asked of HAMi for NVIDIA's is no limit of AMD's. Our own annotation is."""
    a = pod("a")
    asked = DeclaredContainer("main", {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "8192"})
    hami = replace(declares(a), containers=(asked,))
    both = [usage(a, leaf(0), 0), usage(a, leaf(1), 0)]

    def placed(declared: DeclaredPod, vendor: str) -> set[DeviceKey]:
        gpus = (GPUS[0], replace(GPUS[1], vendor=vendor), gpu(2, memory=memory()))  # one alone would be named
        found = amounts(rounds(Limiting(builtin()), inventory((a, declared)), both, gpus)[1])
        assert set(found.values()) == {8 * GIB}
        return {device for _, device in found}

    assert placed(hami, "amd") == {leaf(0)}
    assert placed(hami, "nvidia") == placed(declares(a, {LIMIT: "8Gi"}), "amd") == {leaf(0), leaf(1)}


def test_what_a_scheduler_placed_counts_before_anybody_uses_it() -> None:
    """HAMi's record names the GPU: its limit is declared there from the start, and no longer while the pod ends."""
    a = pod("a")
    hami = {"hami.io/vgpu-devices-allocated": f"{leaf(1).uuid},NVIDIA,3000,30:;"}
    keeps = Limiting(builtin())
    _, found = rounds(keeps, inventory((a, declares(a, hami))))
    assert amounts(found) == {(a.uid, leaf(1)): 3000 * 2**20}
    assert [limit.compute for limit in found.limits] == [0.3]
    _, found = rounds(keeps, inventory((replace(a, terminating=True), declares(a, hami))))
    assert (found.limits, found.memory_declared) == ((), {})


def test_a_raise_is_refused_as_long_as_the_pod_is_known() -> None:
    """What was seen first is carried from round to round, and forgotten with the pod; a new pod of the name is new."""
    a, keeps = pod("a"), Limiting(builtin())
    use = [usage(a, leaf(0))]

    def declaring(text: str) -> Inventory:
        return inventory((a, declares(a, {LIMIT: text})), held={"a": leaf(0)})

    assert amounts(rounds(keeps, declaring("8Gi"), use)[1]) == {(a.uid, leaf(0)): 8 * GIB}
    _, raised = rounds(keeps, declaring("16Gi"), use)
    assert amounts(raised) == {(a.uid, leaf(0)): 8 * GIB}
    assert any("refused" in problem for limit in raised.limits for problem in limit.problems)
    rounds(keeps, Inventory(sharing=SLICED, node=NODE, known=True, live=True))
    assert keeps.resolution(a.uid) is None
    again = pod("a", uid="another")
    facts = inventory((again, declares(again, {LIMIT: "16Gi"})), held={"a": leaf(0)})
    assert amounts(rounds(keeps, facts, [usage(again, leaf(0))])[1]) == {(again.uid, leaf(0)): 16 * GIB}


def test_a_restart_is_no_way_to_raise_a_limit(tmp_path: Path) -> None:
    """What was first seen is handed on through the file; while the API server is away it waits for its pod."""
    a, gone, keeps = pod("a"), pod("gone"), Limiting(builtin())
    facts = inventory((a, declares(a, {LIMIT: "8Gi"})), (gone, declares(gone, {LIMIT: "1Gi"})), held={"a": leaf(0)})
    rounds(keeps, facts)
    file = tmp_path / "first_seen.json"
    first_seen_file.save(file, keeps.first_seen)
    anew = Limiting(builtin(), first_seen=first_seen_file.load(file))
    assert rounds(anew, Inventory())[0] == 0
    assert set(anew.first_seen) == {a.uid, gone.uid}
    raised = inventory((a, declares(a, {LIMIT: "16Gi"})), held={"a": leaf(0)})
    _, found = rounds(anew, raised, [usage(a, leaf(0))])
    assert amounts(found) == {(a.uid, leaf(0)): 8 * GIB}
    assert anew.first_seen == {a.uid: keeps.first_seen[a.uid]}, "a pod that went meanwhile is forgotten"


@pytest.mark.parametrize(
    "content", [b"", b"[]", b'{"u": [{"container": 1}]}', b"{", b"\xff", b'{"u": [{"scope": "no"}]}']
)
def test_a_file_that_cannot_be_used_is_as_none(content: bytes, tmp_path: Path) -> None:
    """Half a file, a file of another program, or none does not keep the daemon from starting."""
    file = tmp_path / "first_seen.json"
    assert first_seen_file.load(file) == {}
    file.write_bytes(content)
    assert first_seen_file.load(file) == {}


def test_two_pods_of_one_name_keep_their_own_limits() -> None:
    """The kubelet names no UID: while the old one ends, what it handed out under the name is the new one's."""
    old, new = pod("a", uid="old", terminating=True), pod("a", uid="new", created_at=2_000_000_000.0)
    facts = inventory((old, declares(old, {LIMIT: "8Gi"})), (new, declares(new, {LIMIT: "4Gi"})), held={"a": leaf(0)})
    _, found = rounds(Limiting(builtin()), facts, [usage(old, leaf(1)), usage(new, leaf(0))])
    assert amounts(found) == {(old.uid, leaf(1)): 8 * GIB, (new.uid, leaf(0)): 4 * GIB}


def test_without_devices_nothing_is_resolved_and_a_lost_gpu_stays_one() -> None:
    """Before the driver's first answer no limit is resolved. A GPU that is silent for a round changes no limit."""
    a, keeps = pod("a"), Limiting(builtin())
    facts = inventory((a, declares(a, {LIMIT: "8Gi"})), held={"a": leaf(0)})
    assert rounds(keeps, facts, gpus=())[0] == 0
    assert rounds(keeps, facts)[0] == 1
    assert rounds(keeps, facts, gpus=GPUS[:1])[0] == 0
    assert rounds(keeps, facts, gpus=(gpu(0), GPUS[1]))[0] == 0, "a memory that could not be read is as large as before"


def test_a_round_resolves_so_many_pods_and_no_more() -> None:
    """A node set up anew does not hold up a round: the others follow in the next one, new pods first."""
    many = [pod(f"p{number}") for number in range(MOST + 10)]
    facts = inventory(*((each, declares(each, {LIMIT: "8Gi"})) for each in many))
    keeps = Limiting(OURS)
    assert [rounds(keeps, facts)[0] for _ in range(3)] == [MOST, 10, 0]
    late = pod("late")
    grown = inventory(*((each, declares(each, {LIMIT: "8Gi"})) for each in [*many, late]))
    assert rounds(keeps, replace(grown, node=None))[0] == MOST
    assert keeps.resolution(late.uid) is not None


def test_pods_that_change_in_each_round_hold_up_nobody() -> None:
    """Users who write annotations for ever, as many as a round resolves: another's change counts in the next round."""
    restless, keeps = [pod(f"p{number}") for number in range(MOST)], Limiting(OURS)
    patient, use = pod("patient"), [usage(pod("patient"), leaf(0))]

    def facts(number: int, limit: str) -> Inventory:
        changing = ((each, declares(each, {"example.com/step": str(number)})) for each in restless)
        return inventory(*changing, (patient, declares(patient, {LIMIT: limit})), held={"patient": leaf(0)})

    for number in range(3):
        rounds(keeps, facts(number, "8Gi"), use)
    told = [amounts(rounds(keeps, facts(number, "4Gi"), use)[1])[patient.uid, leaf(0)] for number in (3, 4)]
    assert told[-1] == 4 * GIB


def test_hostile_text_costs_its_own_pod_alone() -> None:
    """Whatever stands in one pod's annotations, the limits of the others are the same as without it."""
    good, evil = pod("good"), pod("evil")
    texts = {
        LIMIT: "9" * 100_000,
        "hami.io/vgpu-devices-allocated": "GPU,\0," * 20_000,
        "volcano.sh/gpu-assigned": "{[",
    }
    alone = inventory((good, declares(good, {LIMIT: "8Gi"})), held={"good": leaf(0)})
    both = inventory((good, declares(good, {LIMIT: "8Gi"})), (evil, declares(evil, texts)), held={"good": leaf(0)})
    use = [usage(good, leaf(0)), usage(evil, leaf(0))]
    _, expected = rounds(Limiting(builtin()), alone, use[:1])
    _, found = rounds(Limiting(builtin()), both, use)
    assert [limit for limit in found.limits if limit.pod_uid == good.uid] == list(expected.limits)
    assert found.memory_declared == expected.memory_declared
    assert all(limit.memory is None and limit.problems for limit in found.limits if limit.pod_uid == evil.uid)


def test_a_bug_that_one_pod_finds_is_not_everybodys() -> None:
    """Where the resolver fails on one pod, that one has no limit, keeps what was first seen, and the round goes on."""
    ours = next(system for system in builtin() if system.name == "gpusteward")
    broken = msgspec.structs.replace(
        next(row for row in ours.rows if row.key == "nvidia.com/container.*.gpu-memory.limit"),
        key="broken.*",
        decoder="there is none",
    )
    catalogue = tuple(
        msgspec.structs.replace(each, rows=(*each.rows, broken)) if each is ours else each for each in builtin()
    )
    good, bad, keeps = pod("good"), pod("bad"), Limiting(catalogue)
    held, use = {"good": leaf(0), "bad": leaf(1)}, [usage(good, leaf(0)), usage(bad, leaf(1))]
    both = {(good.uid, leaf(0)): 8 * GIB, (bad.uid, leaf(1)): 8 * GIB}
    well, ill = declares(bad, {LIMIT: "8Gi"}), declares(bad, {LIMIT: "8Gi", "broken.main": "1"})
    fine = (good, declares(good, {LIMIT: "8Gi"}))
    assert amounts(rounds(keeps, inventory((bad, well), fine, held=held), use)[1]) == both
    failed = rounds(keeps, inventory((bad, ill), fine, held=held), use)[1]
    assert amounts(failed) == {(good.uid, leaf(0)): 8 * GIB}
    raised = replace(well, annotations={LIMIT: "16Gi"})
    assert amounts(rounds(keeps, inventory((bad, raised), fine, held=held), use)[1]) == both


def test_the_operators_choice_is_the_resolvers() -> None:
    """With `fair_share` a pod that declares nothing has its share of a GPU in four replicas; without it, no limit."""
    a = pod("a")
    facts = inventory((a, declares(a)), held={"a": leaf(0)})
    use = [usage(a, leaf(0))]
    assert amounts(rounds(Limiting(builtin()), facts, use)[1]) == {(a.uid, leaf(0)): None}
    _, found = rounds(Limiting(builtin(), Options(fair_share=True)), facts, use)
    assert amounts(found) == {(a.uid, leaf(0)): 20 * GIB}


HOOKED = {"nvidia.com/gpumem": "8192"}


def hooked(who: Pod, resources: Mapping[str, str], annotations: Mapping[str, str] | None = None) -> DeclaredPod:
    """Make a pod of two containers, the first of which asks for resources."""
    containers = (DeclaredContainer("main", dict(resources)), DeclaredContainer("sidecar"))
    return DeclaredPod(who.uid, who.namespace, who.name, annotations=annotations or {}, containers=containers)


@pytest.mark.parametrize(
    ("used", "told"),
    [
        (8 * GIB, False),
        (8 * GIB + 256 * 2**20, False),
        (8 * GIB + 257 * 2**20, True),
        (None, None),
    ],
)
def test_a_hook_that_does_not_hold_is_told(used: int | None, told: bool | None) -> None:
    """Above limit and tolerance, HAMi's library is bypassed; what is not known proves nothing."""
    a = pod("a")
    facts = inventory((a, hooked(a, HOOKED)), held={"a": leaf(0)})
    use = [usage(a, leaf(0), used), usage(subject(a, "sidecar"), leaf(0), 20 * GIB)]
    _, found = rounds(Limiting(builtin(), tolerance=TOLERANCE), facts, use)
    assert {limit.container: limit.bypassed for limit in found.limits if limit.container} == {"main": told}


def test_of_a_large_limit_a_fiftieth_is_tolerated() -> None:
    """2 % of 50 GiB are 1 GiB."""
    a = pod("a")
    facts = inventory((a, hooked(a, {"nvidia.com/gpumem": "51200"})), held={"a": leaf(0)})
    told = [
        rounds(Limiting(builtin(), tolerance=TOLERANCE), facts, [usage(a, leaf(0), each * GIB)])[1].limits[0]
        for each in (51, 52)
    ]
    assert [limit.bypassed for limit in told] == [False, True]


def test_two_generations_do_not_bypass_together() -> None:
    """While a container restarts, the old and the new one are each held to the limit by themselves."""
    a = pod("a")
    facts = inventory((a, hooked(a, HOOKED)), held={"a": leaf(0)})
    use = [usage(subject(a, generation=number), leaf(0), 6 * GIB) for number in (0, 1)]
    _, found = rounds(Limiting(builtin(), tolerance=TOLERANCE), facts, use)
    assert [limit.bypassed for limit in found.limits] == [False]


def test_nobody_bypasses_what_nobody_enforces() -> None:
    """A limit that is only declared, and one of MPS (which limits processes), can be exceeded and not bypassed."""
    a, b = pod("a"), pod("b")
    facts = inventory((a, declares(a, {LIMIT: "8Gi"})), (b, declares(b)), held={"a": leaf(0), "b": leaf(1)})
    mps = replace(
        facts,
        sharing={leaf(0): (Sharing.TIME_SLICING, 4), leaf(1): (Sharing.MPS, 4)},
        node=NodeFacts({"nvidia.com/gpu": "8"}),
    )
    _, found = rounds(
        Limiting(builtin(), tolerance=TOLERANCE), mps, [usage(a, leaf(0), 20 * GIB), usage(b, leaf(1), 60 * GIB)]
    )
    assert {limit.pod_uid: (limit.enforced_by, limit.bypassed) for limit in found.limits} == {
        a.uid: ("none", None),
        b.uid: ("mps", None),
    }


def test_the_use_of_a_pod_is_that_of_all_its_containers() -> None:
    """A limit of the whole pod that a system enforces is bypassed by what its containers hold together."""
    row = {"mechanism": "annotation", "key": "acme.example/gpu-mib", "what": "memory", "unit": "1Mi", "scope": "pod"}
    acme = {
        "system": "acme",
        "title": "Acme",
        "enforced_by": "kernel",
        "context": "included",
        "detect": {"always": True},
        "rows": [row],
    }
    catalogue = with_own([acme], "test")
    a = pod("a")
    facts = inventory((a, hooked(a, {"nvidia.com/gpu": "1"}, {"acme.example/gpu-mib": "8192"})), held={"a": leaf(0)})

    def told(*use: Usage) -> bool | None:
        _, found = rounds(Limiting(catalogue, tolerance=TOLERANCE), facts, [*use, usage(a, leaf(1), 60 * GIB)])
        return next(each.bypassed for each in found.limits if not each.container and each.device == leaf(0))

    def both(*amounts: int | None) -> Iterable[Usage]:
        names = ("main", "sidecar")
        return (usage(subject(a, name), leaf(0), each) for name, each in zip(names, amounts, strict=True))

    assert told(*both(4 * GIB, 3 * GIB)) is False
    assert told(*both(5 * GIB, 4 * GIB)) is True
    assert told(*both(9 * GIB, None)) is None
    sandboxed, handed = usage(subject(a, ""), leaf(0), 9 * GIB), replace(usage(a, leaf(0), None), with_pod=True)
    assert told(sandboxed, handed) is True


def test_the_ceiling_of_a_limit_counts_the_contexts_of_its_processes() -> None:
    """
    The exported ceiling is limit, tolerance and what is allowed for contexts, and follows the processes.

    A limit that includes contexts has none of the allowance, and a reload of the tolerance counts in the next round.
    """
    a, b, keeps = pod("a"), pod("b"), Limiting(builtin(), tolerance=TOLERANCE)
    facts = inventory((a, declares(a, {LIMIT: "8Gi"})), (b, hooked(b, HOOKED)), held={"a": leaf(0), "b": leaf(1)})

    def ceilings(*processes: int) -> dict[str, int | None]:
        use = [usage(each, where, sum(processes)) for each, where in ((a, leaf(0)), (b, leaf(1)))]
        use = [replace(each, process_memory=processes) for each in use]
        _, found = rounds(keeps, facts, use)
        return {limit.pod_uid: limit.ceiling for limit in found.limits if limit.memory}

    without = 8 * GIB + 256 * MIB
    assert ceilings() == {a.uid: without, b.uid: without}
    assert ceilings(100 * MIB, 8 * GIB) == {a.uid: without + 612 * MIB, b.uid: without}
    assert ceilings(*[512 * MIB] * 100) == {a.uid: without + 2 * GIB, b.uid: without}
    keeps.tolerance = replace(TOLERANCE, per_process=0)
    assert ceilings(8 * GIB) == {a.uid: without, b.uid: without}


def test_the_ceiling_of_a_claim_counts_the_processes_of_all_that_share_it() -> None:
    """Until it is known which pods share a claim the most is allowed; each process of a holder counts once."""
    a, b = pod("a"), pod("b")
    claimed = limit(a, leaf(0), 8 * GIB, scope="claim", claim="shared")
    use = tuple(replace(usage(each, leaf(0), GIB), process_memory=(256 * MIB, 768 * MIB)) for each in (a, b))
    shares = frozenset(each.subject for each in use)
    shared = ClaimUsage(a.namespace, "shared", leaf(0), 2 * GIB, shares)
    keeps = Limiting(builtin(), tolerance=TOLERANCE)

    def ceiling(claims: tuple[ClaimUsage, ...]) -> int | None:
        seen = snapshot(usages=use, limits=(claimed,), claim_usages=claims)
        return with_claims(seen, keeps.tolerance).limits[0].ceiling

    assert ceiling(()) == 8 * GIB + 256 * MIB + 2 * GIB
    assert ceiling((shared,)) == 8 * GIB + 256 * MIB + 2 * 768 * MIB


def test_what_is_declared_in_vain_is_known() -> None:
    """Each invalid text once, with its key, also of a pod without a device; gone when it or the pod is."""
    a, b, keeps = pod("a"), pod("b"), Limiting(builtin())
    wrong, fine = {LIMIT: "eight"}, {LIMIT: "8Gi"}
    rounds(keeps, inventory((a, declares(a, wrong)), (b, declares(b, fine)), held={"b": leaf(0)}))
    (one,) = keeps.invalid()
    assert (one.pod_uid, one.namespace, one.pod, one.container) == (a.uid, a.namespace, "a", "main")
    assert (one.row, one.key) == ("gpusteward annotation nvidia.com/container.*.gpu-memory.limit", LIMIT)
    assert (one.text, one.reason != "", one.reason.startswith("invalid")) == ("eight", True, False)
    rounds(keeps, inventory((a, declares(a, fine)), (b, declares(b, wrong))))
    assert {each.pod for each in keeps.invalid()} == {"b"}
    rounds(keeps, inventory((a, declares(a, fine))))
    assert keeps.invalid() == frozenset()
