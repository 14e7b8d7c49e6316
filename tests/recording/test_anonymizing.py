"""Promises of recording/keeping.py and anonymizing.py: no secrets, no names, and the limits stay what they were."""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path

import msgspec
import pytest

from builders import gpu, memory
from exporter.accounts.attribution import Names
from exporter.limits import Resolution, leaf_devices, resolve
from exporter.limits.loading import builtin
from exporter.limits.node_devices import devices_of
from exporter.limits.reservations import Reservations
from exporter.model import (
    CgroupMemory,
    Claim,
    ClaimConfig,
    ClaimedDevice,
    Container,
    ContainerId,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    Fault,
    GpuSample,
    HostProcess,
    HostSample,
    Inventory,
    NodeFacts,
    Owner,
    Pod,
    PodUid,
    ProcessKey,
    Snapshot,
    Subject,
)
from exporter.objects.manifest import Manifest, read
from exporter.recording import FORMAT, Header, HostRead, RecordedRound, Writing
from exporter.recording.anonymizing import NODE_LABELS, SYSTEM, Pseudonyms
from exporter.recording.keeping import Keeping
from exporter.recording.keeping import read as picked
from exporter.recording.lines import InventoryPart
from exporter.simulated import SimulatedNode
from pace import quick
from recordings import SteppedClock, assert_same, record, replayed, rounds

FIXTURES = sorted((Path(__file__).parents[1] / "limits" / "fixtures").glob("*.yaml"))
KEEPING = Keeping.of(builtin())
UID, ID = PodUid("0f6f4d1c-8a77-4c5e-9f2b-3d5a1c2b4e6f"), ContainerId("ab" * 32)


def text(inventory: Inventory) -> str:
    """Say all that would be written."""
    return msgspec.json.encode(InventoryPart.of(1, inventory)).decode()


def secretive() -> Inventory:
    """Make an inventory with a name or a secret wherever one can be."""
    annotations = {
        "nvidia.com/container.trainer.gpu-memory.limit": "8Gi",
        "gpu-fraction-container-name": "trainer",
        "vault.example/token": "hunter2",
        "gpusteward.io/grace-seconds": "60",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    labels = {"owner": "alice", "gpusteward.io/mode": "enforce"}
    container = DeclaredContainer(
        "trainer", {"nvidia.com/gpu": "1"}, env={"GPU_NOTE": "hunter2", "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4G"}
    )
    parameters = {"sharing": {"mpsConfig": {"defaultPinnedDeviceMemoryLimit": "3Gi"}}, "password": "hunter2"}
    return Inventory(
        pods={
            UID: Pod(
                UID, "acme-research", "bert-finetune-0", "Job", "bert-finetune", "acme-queue", "acme-high",
                labels=labels, annotations=annotations,
            )
        },
        containers=(Container(UID, "trainer", ID),),
        declared={
            UID: DeclaredPod(
                UID, "acme-research", "bert-finetune-0", labels, annotations, (container,), {"own": "acme-claim"}
            )
        },
        node=NodeFacts(
            labels={"kubernetes.io/hostname": "acme-host-7", "nvidia.com/gpu.count": "8"},
            annotations={"cni.example/secret": "hunter2"},
        ),
        claims=(
            Claim(
                "acme-research", "acme-claim",
                (ClaimedDevice("gpu", "gpu.nvidia.com", "acme-host-7", "gpu-0"),),
                (ClaimConfig("gpu.nvidia.com", (), parameters),),
            ),
        ),
        namespaces={"acme-research": labels, "kube-system": {}},
        known=True,
        live=True,
        faults=(Fault("names", "api_away", "https://acme-api:6443 does not answer", "acme-host-7"),),
    )  # fmt: skip


def test_nothing_secret_is_kept() -> None:
    """Annotations, variables and parameters that neither limits nor policy read are left out; the others stay."""
    kept = KEEPING.inventory(secretive())
    assert "hunter2" not in text(kept)
    assert kept.pods[UID].annotations.keys() == secretive().pods[UID].annotations.keys() - {"vault.example/token"}
    assert kept.declared[UID].containers[0].env == {"CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": "0=4G"}
    inner = {"mpsConfig": {"defaultPinnedDeviceMemoryLimit": "3Gi"}}
    assert kept.claims[0].configs[0].parameters == {"sharing": inner, "password": {}}
    assert kept.node is not None and kept.node.annotations == {} and "kubernetes.io/hostname" in kept.node.labels
    assert kept.pods[UID].labels == secretive().pods[UID].labels


def test_no_name_is_left() -> None:
    """Anonymized, no name, UID, container id, host or stranger's label is left in any place; system names stay."""
    found = Pseudonyms(b"salt", KEEPING).inventory(KEEPING.inventory(secretive()))
    written = text(found)
    for name in ("acme", "bert", "trainer", "alice", "hunter2", UID, ID, '"own"', "6443"):
        assert name not in written, name
    assert {"kube-system"} < found.namespaces.keys()
    (pod,) = found.pods.values()
    assert pod.annotations["cluster-autoscaler.kubernetes.io/safe-to-evict"] == "false"
    assert pod.labels == {"gpusteward.io/mode": "enforce"}
    (declared,) = found.declared.values()
    (name,) = (container.name for container in declared.containers)
    assert declared.annotations[f"nvidia.com/container.{name}.gpu-memory.limit"] == "8Gi"
    assert declared.annotations["gpu-fraction-container-name"] == name
    assert [*declared.claims.values()] == [found.claims[0].name]


def test_one_name_one_pseudonym() -> None:
    """The kernel's owners still lead to their pods; another salt makes other names."""
    owner = Owner(((UID, ID), (None, None)))
    process = HostProcess(ProcessKey(7, 1), alive=True, owner=owner)
    asked = HostRead(frozenset({7}), HostSample({7: process}, living=frozenset({owner})))
    one, other = Pseudonyms(b"salt", KEEPING), Pseudonyms(b"pepper", KEEPING)
    host, inventory = one.host(asked).sample, one.inventory(secretive())
    found = host.processes[7].owner
    assert found is not None and host.living == frozenset({found})
    (container,) = inventory.containers
    assert Names.of(secretive()).subject(owner) == Subject(UID, "trainer", ID)
    assert Names.of(inventory).subject(found) == Subject(container.pod_uid, container.name, container.id)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", container.pod_uid)
    assert re.fullmatch(r"[0-9a-f]{64}", container.id or "")
    assert other.inventory(secretive()).containers != inventory.containers


def test_the_header_says_so() -> None:
    """Node and first declarations are renamed as in the rounds, and the file says that it is anonymized."""
    seen: dict[str, list[dict[str, str | int | None]]] = {
        str(UID): [{"container": "trainer", "claim": "acme-research/acme-claim", "bytes": 3}]
    }
    names = Pseudonyms(b"salt", KEEPING)
    header = names.header(
        Header(gpusteward_recording=FORMAT, program="1", node="acme-host-7", started_at=0, interval=5, first_seen=seen)
    )
    inventory = names.inventory(secretive())
    claim = inventory.claims[0]
    assert header.anonymized and "acme" not in str(header)
    assert header.first_seen == {
        inventory.containers[0].pod_uid: [
            {"container": inventory.containers[0].name, "claim": f"{claim.namespace}/{claim.name}", "bytes": 3}
        ]
    }


@cache
def manifest_of(path: Path) -> Manifest:
    """Read an example once for two tests."""
    return read(path.read_text())


def amounts(found: Iterable[Resolution]) -> list[tuple[object, ...]]:
    return sorted(
        (
            str(one.bytes),
            str(one.compute),
            one.system,
            one.scope.value,
            str(one.device),
            one.enforced_by.value,
        )
        for resolution in found
        for one in resolution.limits
    )


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.stem)
def test_limits_come_out_the_same(path: Path) -> None:
    """Of every system's example: what is kept, and what is left when the names are gone, declares the same bytes."""
    manifest = manifest_of(path)
    node = manifest.nodes[0] if manifest.nodes else None
    devices = devices_of(node) if node else leaf_devices([gpu(index, memory=memory()) for index in range(2)])
    whole = Inventory(
        declared={PodUid(f"{index}"): pod for index, pod in enumerate(manifest.pods)},
        node=node,
        claims=manifest.claims,
    )

    def resolved(inventory: Inventory) -> list[tuple[object, ...]]:
        return amounts(
            resolve(pod, inventory.node, devices, builtin(), claims=inventory.claims)
            for pod in inventory.declared.values()
        )

    kept, wanted = KEEPING.inventory(whole), resolved(whole)
    assert wanted
    assert resolved(kept) == wanted
    assert resolved(Pseudonyms(b"salt", KEEPING).inventory(kept)) == wanted


def held(snapshot: Snapshot) -> list[str]:
    return sorted(
        json.dumps([u.device.uuid, u.device.gpu_instance, u.memory_used, u.memory_peak, float(u.sm or 0)], default=str)
        for u in snapshot.usages
    )


class Spy(dict[str, str]):
    """A mapping that notes which keys are asked for by name."""

    asked: set[str]

    def get(self, key: str, default: object = None) -> object:  # type: ignore[override]
        self.asked.add(key)
        return super().get(key, default)


def test_what_is_asked_for_by_name_is_kept() -> None:
    """A row, condition or decoder that reads an annotation or variable beside its own is known here, too."""
    asked: dict[str, set[str]] = {"pod": set(), "node": set(), "label": set(), "env": set()}

    def spied(texts: Mapping[str, str], where: str) -> Spy:
        spy = Spy(texts)
        spy.asked = asked[where]
        return spy

    for path in FIXTURES:
        manifest = manifest_of(path)
        node = manifest.nodes[0] if manifest.nodes else NodeFacts()
        devices = devices_of(node) or leaf_devices([gpu(index, memory=memory()) for index in range(2)])
        for pod in manifest.pods:
            containers = (replace(one, env=spied(one.env, "env")) for one in pod.containers)
            resolve(
                replace(pod, annotations=spied(pod.annotations, "pod"), containers=tuple(containers)),
                replace(node, labels=spied(node.labels, "label"), annotations=spied(node.annotations, "node")),
                devices,
                builtin(),
                claims=manifest.claims,
            )
    assert asked["pod"] and asked["env"], "nothing was asked: the spy is blind"
    kept = {
        "pod": KEEPING.pod_annotations,
        "node": KEEPING.node_annotations,
        "label": (*KEEPING.node_labels, *NODE_LABELS),
        "env": KEEPING.env,
    }
    for where, keys in asked.items():
        assert keys - {""} <= picked(kept[where], dict.fromkeys(keys, "")).keys()


def test_the_owner_of_a_cgroup_has_its_pseudonym(tmp_path: Path) -> None:
    """What the kernel counts by cgroup is written under the pseudonyms that its processes have, bytes as they are."""
    pod, id_ = PodUid("6f1c2f0e-8f57-4c0e-9d0b-5a3a0f3a8a11"), ContainerId("abc123" * 10 + "abcd")
    names = Pseudonyms(b"salt", KEEPING)
    one = gpu(0)
    counted = CgroupMemory(Owner(((pod, id_),)), DeviceKey(one.uuid), 4096, limit=8192)
    sample = GpuSample(one, 1.0, (), cgroups=(counted,), partial=True, unseen=(Owner(((pod, id_),)),))
    recorded = RecordedRound(1, 1.0, 1.0, 0.1, samples=(sample,))
    file = tmp_path / "r"
    header = Header(gpusteward_recording=FORMAT, program="1", node="n", started_at=1.0, interval=5.0)
    with Writing(file, names.header(header), owner=names.owner) as writing:
        writing.add(recorded)
    assert id_ not in file.read_text() and pod not in file.read_text()
    (back,) = rounds(file)
    (found,) = back.samples[0].cgroups
    owner = Owner(((PodUid(names.id(pod)), ContainerId(names.id(id_))),))
    assert found == replace(counted, owner=owner)
    assert (back.samples[0].unseen, back.samples[0].partial) == ((owner,), True)


async def test_an_anonymized_replay_tells_the_same_numbers(tmp_path: Path) -> None:
    """
    Two minutes of the simulated node: used, peaks, limits and processes are those of the node with names.

    In `make check` one minute.
    """
    seconds = 60 if quick() else 120
    clock = SteppedClock(seconds)
    node = SimulatedNode(clock.time, clock.time())
    live = await record(tmp_path / "plain", node, clock)
    clock = SteppedClock(seconds)
    node = SimulatedNode(clock.time, clock.time())
    names = Pseudonyms(b"salt", KEEPING)
    await record(tmp_path / "anonymous", node, clock, names)
    found = await replayed(tmp_path / "anonymous")
    assert_same(await replayed(tmp_path / "plain"), live)
    for one, other in zip(found, live, strict=True):
        assert one.devices == other.devices and one.processes == other.processes
        assert one.memory_declared == other.memory_declared

        assert held(one) == held(other)
        assert sorted(str(limit.memory) for limit in one.limits) == sorted(str(limit.memory) for limit in other.limits)
    known = {text for pod in live[0].pods.values() for text in (pod.name, pod.workload, pod.uid, pod.namespace) if text}
    written = (tmp_path / "anonymous").read_text()
    assert [name for name in known if f'"{name}"' in written and not SYSTEM["namespace"].fullmatch(name)] == []


def test_a_reservation_pod_stays_one() -> None:
    """Its system's namespace and the labels of its groups stay, so that a replay counts the same pods."""
    names = Pseudonyms(b"salt", KEEPING)
    labels = {"runai-gpu-group": "acme-g", "team": "secret"}
    hold = Pod(PodUid("uid-hold"), "kai-resource-reservation", "gpu-reservation-1", labels=labels)
    one = Pod(PodUid("uid-one"), "research", "one", labels={"runai-gpu-group": "acme-g"})
    several = Pod(PodUid("uid-several"), "research", "several", labels={"runai-gpu-group/acme-g": "acme-g"})
    pods = names.inventory(Inventory(pods={pod.uid: pod for pod in (hold, one, several)})).pods
    found = Reservations(builtin()).marked(pods)
    kept, *members = found.values()
    device = DeviceKey(gpu(0).uuid)
    assert (kept.namespace, kept.reservation) == ("kai-resource-reservation", "kai")
    (group,) = Reservations(builtin()).reserved(found, {kept.uid: [device]})
    assert [[*Reservations(builtin()).groups(pod)] for pod in members] == [[group]] * 2
    assert kept.name != hold.name and "acme" not in str(found) and "secret" not in str(found)
