"""Scope is kept, sums count each declaration once, and the answer names any other system that enforces the limit."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from exporter.limits import LeafDevice, Options, Resolution, bypassed, declared, resolve
from exporter.limits.answers import ResolvedLimit, Subject
from exporter.limits.devices import Place
from exporter.limits.loading import builtin
from exporter.limits.placing import placed
from exporter.model import (
    Claim,
    ClaimConfig,
    ClaimedDevice,
    ClaimUse,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    EnforcedBy,
    GpuUuid,
    Held,
    Mechanism,
    NodeFacts,
    Scope,
    Sharing,
)

MIB, GIB = 2**20, 2**30

Pod = Callable[..., DeclaredPod]
Gpus = Callable[..., tuple[LeafDevice, ...]]
Resolved = Callable[..., Resolution]


def key(device: LeafDevice) -> DeviceKey:
    assert device.key is not None
    return device.key


def test_a_pods_limit_is_no_containers(resolved: Resolved, gpus: Gpus) -> None:
    """gpushare's pod of two containers has one limit, the pod's; its containers have none."""
    devices = gpus(15109 * MIB)
    found = resolved("gpushare", "binpack-1-0", devices=devices)
    assert [(limit.scope, limit.subject.container) for limit in found.limits] == [(Scope.POD, "")]
    assert found.on(key(devices[0]), "player") is None
    pods = found.on(key(devices[0]))
    assert pods is not None
    assert pods.bytes == 5 * GIB


OF_VENDORS = {
    "intel": {"gpu.intel.com/i915": "1"},
    "amd": {"amd.com/gpu": "1"},
    "hygon": {"hygon.com/dcunum": "1", "hygon.com/dcumem": "16384"},
    "huawei": {"huawei.com/Ascend910-2c": "1"},
    "metax": {"metax-tech.com/sgpu": "1"},
    "nvidia": {"nvidia.com/gpu": "1"},
}


@pytest.mark.parametrize("vendor", OF_VENDORS)
@pytest.mark.parametrize("others", [0, 1])
def test_our_annotation_lowers_the_limit_on_devices_of_any_vendor(vendor: str, others: int) -> None:
    """Also where the system declares no amount, on a mixed node too; and it cannot be raised again."""
    wanted = {"nvidia.com/container.main.gpu-memory.limit": "1Gi"}
    mine = LeafDevice(DeviceKey(GpuUuid("X-0")), 0, minor=0, memory=32 * GIB, vendor=vendor)
    other = LeafDevice(
        DeviceKey(GpuUuid("Y-0")), 1, minor=1, memory=32 * GIB, vendor="intel" if vendor == "amd" else "amd"
    )
    devices = (mine, *(other,) * others)
    pod = DeclaredPod("u", "n", "p", {}, wanted, (DeclaredContainer("main", limits=OF_VENDORS[vendor]),))
    found = resolve(pod, None, devices, builtin())
    later = replace(pod, annotations={"nvidia.com/container.main.gpu-memory.limit": "8Gi"})
    for each in (found, resolve(later, None, devices, builtin(), found.first_seen)):
        limits = placed(each, [("main", key(mine))], lambda one, _: one.vendor not in {"", vendor}, expected=True)
        assert [(limit.bytes, limit.device) for limit in limits] == [(GIB, key(mine))]


@pytest.mark.parametrize("other", ["metax-tech.com/vmemory", "amd.com/gpumem", "iluvatar.ai/gpu", "mthreads.com/gpu"])
@pytest.mark.parametrize("amount", ["0", "1"])
def test_a_resource_of_another_vendor_lets_our_annotation_raise_nothing(gpus: Gpus, other: str, amount: str) -> None:
    """A container has 4 GiB of an NVIDIA GPU, asks for a resource that the node lacks, and writes 80 GiB itself."""
    node = NodeFacts(capacity={"tencent.com/vcuda-memory": "640", "tencent.com/vcuda-core": "200"})
    granted = {"tencent.com/vcuda-memory": "16", "tencent.com/vcuda-core": "10"}
    devices = gpus(80 * GIB, 80 * GIB)
    pod = DeclaredPod("u", "n", "p", {}, {}, (DeclaredContainer("main", limits={**granted, other: amount}),))
    before = resolve(pod, node, devices, builtin())
    wants = replace(pod, annotations={"nvidia.com/container.main.gpu-memory.limit": "80Gi"})
    for found in (
        before,
        resolve(wants, node, devices, builtin(), before.first_seen),
        resolve(wants, node, devices, builtin()),
    ):
        limit = found.on(key(devices[0]), "main", foreign=lambda one, _: one.vendor not in {"", "nvidia"})
        assert limit is not None and limit.bytes == 4 * GIB


@pytest.mark.parametrize(
    "container",
    [
        DeclaredContainer("main", env={"NVIDIA_GPU_MEMORY_LIMITS": "512"}),
        DeclaredContainer("main", limits={"nvidia.com/gpumem": "512"}),
    ],
    ids=["env", "resource"],
)
def test_what_is_said_of_another_vendors_devices_leaves_our_annotation_alone(container: DeclaredContainer) -> None:
    """A node of Intel GPUs, of which the container holds one without a declaration that says so."""
    mine = LeafDevice(DeviceKey(GpuUuid("X-0")), 0, minor=0, memory=32 * GIB, vendor="intel")
    wanted = {"nvidia.com/container.main.gpu-memory.limit": "1Gi"}
    pod = DeclaredPod("u", "n", "p", {}, wanted, (container,))
    limit = resolve(pod, None, (mine,), builtin()).on(
        key(mine), "main", foreign=lambda one, _: one.vendor not in {"", "intel"}
    )
    assert limit is not None and limit.bytes == GIB


@pytest.mark.parametrize("later", [{}, {"nvidia.com/container.main.gpu-memory.limit": "60Gi"}], ids=["none", "more"])
def test_our_annotation_is_remembered_for_devices_of_a_vendor_that_comes_later(
    gpus: Gpus, later: dict[str, str]
) -> None:
    """Another system reads the same annotation for NVIDIA's devices; the daemon then finds the ones of AMD."""
    amd = LeafDevice(DeviceKey(GpuUuid("A-0")), 1, minor=1, memory=192 * GIB, vendor="amd")
    wants = {"nvidia.com/container.main.gpu-memory.limit": "10Gi"}
    container = DeclaredContainer("main", env={"NVIDIA_GPU_MEMORY_LIMITS": "4096"})
    pod = DeclaredPod("u", "n", "p", {}, wants, (container,))
    before = resolve(pod, None, gpus(80 * GIB), builtin())
    devices = (*gpus(80 * GIB), amd)
    found = resolve(replace(pod, annotations=later), None, devices, builtin(), before.first_seen)
    limit = found.on(key(amd), "main", foreign=lambda one, _: one.vendor not in {"", "amd"})
    assert limit is not None and limit.bytes == 10 * GIB


@pytest.mark.parametrize(
    ("asked", "env", "least"),
    [({"amd.com/gpumem": "1024"}, {}, 20), ({}, {"NVIDIA_GPU_MEMORY_LIMITS": "4096"}, 4)],
    ids=["a resource of AMD", "a smaller limit"],
)
@pytest.mark.parametrize("expected", [True, False])
def test_a_fair_share_is_of_nvidias_devices(
    gpus: Gpus, asked: dict[str, str], env: dict[str, str], least: int, expected: bool
) -> None:
    """The kubelet handed out a replica of the NVIDIA GPU. What is said of AMD's devices changes nothing there."""
    (mine,) = (replace(each, sharing=Sharing.TIME_SLICING, replicas=4) for each in gpus(80 * GIB))
    amd = LeafDevice(DeviceKey(GpuUuid("A-0")), 1, minor=1, memory=192 * GIB, vendor="amd")
    held = (Held("main", "nvidia.com/gpu", key(mine)),)
    container = DeclaredContainer("main", limits={"nvidia.com/gpu": "1", **asked}, env=env)
    pod = DeclaredPod("u", "n", "p", {}, {}, (container,), held=held)
    for devices in ((mine,), (mine, amd)):
        found = resolve(pod, None, devices, builtin(), options=Options(fair_share=True))
        limits = placed(
            found, [("main", key(mine))], lambda one, _: one.vendor not in {"", "nvidia"}, expected=expected
        )
        assert [limit.bytes for limit in limits if limit.device == key(mine)] == [least * GIB]


def limit_of_pod(scope: Scope, amount: int | None, place: Place | None, *doubts: str) -> ResolvedLimit:
    known = (Subject(), place, amount, "kai", Mechanism.ANNOTATION, scope, EnforcedBy.NONE)
    return ResolvedLimit(*known, report_only=doubts)


@pytest.mark.parametrize("seen", [True, False])
@pytest.mark.parametrize("other", [(16 * GIB,), (None,), (GIB, "in doubt")])
def test_of_two_limits_of_a_pod_the_smaller_is_placed(gpus: Gpus, seen: bool, other: tuple[int | None, str]) -> None:
    """What another system reads of the pod's annotations hides no limit, whether one, both or none names the device."""
    device = key(gpus(15109 * MIB)[0])
    here = Place("GPU 0", device)
    for first, second in [(here, None), (here, here), (None, here), (None, None)]:
        if not seen and None in (first, second):
            continue  # counts where the pod is seen
        amount, *doubts = other
        wider = limit_of_pod(Scope.CONTAINER, amount, first, *doubts), limit_of_pod(Scope.POD, 4 * GIB, second)
        for limits in (wider, wider[::-1]):
            found = placed(
                Resolution("uid", "team", "p", limits), [("", device)] if seen else [], lambda *_: False, expected=True
            )
            assert [(limit.bytes, limit.device) for limit in found] == [(4 * GIB, device)]


def test_a_process_is_no_container(resolved: Resolved, gpus: Gpus) -> None:
    """MPS limits each process: the container has no limit, until the operator says that it has."""
    devices = tuple(replace(each, sharing=Sharing.MPS, replicas=4) for each in gpus(15360 * MIB))
    found = resolved("nvidia-mps", "two-replicas", devices=devices)
    assert found.on(key(devices[0]), "main") is None
    process = found.on(key(devices[0]), "main", scope=Scope.PROCESS)
    assert process is not None
    assert (process.bytes, process.enforceable) == (3840 * MIB, False)
    chosen = resolved("nvidia-mps", "two-replicas", devices=devices, options=Options(mps_container=True))
    container = chosen.on(key(devices[0]), "main")
    assert container is not None
    assert (container.bytes, container.enforceable) == (3840 * MIB, True)


def shared_claim(*amounts: str) -> Claim:
    devices = tuple(
        ClaimedDevice("gpu", "gpu.nvidia.com", "node", "gpu-0", f"share-{index}", {"memory": amount})
        for index, amount in enumerate(amounts)
    )
    return Claim("team-a", "shared", devices)


def user_of_claim(name: str) -> DeclaredPod:
    main = DeclaredContainer("main", claims=(ClaimUse("gpu"),))
    return DeclaredPod(f"uid-{name}", "team-a", name, containers=(main,), claims={"gpu": "shared"})


def test_a_claim_counts_once(gpus: Gpus) -> None:
    """Two pods share a claim of 10 GiB: each of them has its limit, and together they may hold 10 GiB."""
    devices, claim = gpus(16 * GIB), shared_claim("10Gi")
    found = [resolve(user_of_claim(name), None, devices, builtin(), claims=[claim]) for name in ("a", "b")]
    limits = [limit for each in found for limit in each.limits]
    assert [limit.bytes for limit in limits] == [10 * GIB, 10 * GIB]
    assert all(limit.enforceable and limit.report_only == () for limit in limits)
    assert {(limit.scope, limit.subject.claim) for limit in limits} == {(Scope.CLAIM, "team-a/shared")}
    assert declared(each.limits for each in found) == {devices[0].key: 10 * GIB}


def test_shares_of_one_claim_add_up(gpus: Gpus) -> None:
    """A claim with two shares of one device may hold both."""
    devices = gpus(16 * GIB)
    (limit,) = resolve(user_of_claim("a"), None, devices, builtin(), claims=[shared_claim("4Gi", "2Gi")]).limits
    assert limit.bytes == 6 * GIB
    assert limit.enforceable


def test_claims_of_other_namespaces_do_not_matter(gpus: Gpus) -> None:
    """A claim of the same name in another namespace is another claim."""
    claim = replace(shared_claim("4Gi"), namespace="team-b")
    assert resolve(user_of_claim("a"), None, gpus(16 * GIB), builtin(), claims=[claim]).limits == ()


def test_declared_sums(pod: Pod, gpus: Gpus) -> None:
    """Over-commitment shows: what is declared on a device is the sum over its pods."""
    devices = gpus(16 * GIB)
    asked = pod({"nvidia.com/gpumem": "10240"})
    both = [resolve(replace(asked, uid=uid), None, devices, builtin()) for uid in ("a", "b")]
    assert declared(each.limits for each in both) == {devices[0].key: 20 * GIB}


def test_held_devices(gpus: Gpus) -> None:
    """The kubelet's true ids say which GPUs a container holds, and how many replicas of each."""
    devices = gpus(16 * GIB, 32 * GIB)
    held = (Held("main", "nvidia.com/gpu", key(devices[1])),)
    main = DeclaredContainer("main", limits={"nvidia.com/gpu": "1"})
    (limit,) = resolve(DeclaredPod("u", "n", "p", containers=(main,), held=held), None, devices, builtin()).limits
    assert (limit.device, limit.bytes) == (devices[1].key, 32 * GIB)


def test_fair_share(gpus: Gpus) -> None:
    """Switched on, a container gets total / replicas x replicas held of a device; off, nothing is declared."""
    devices = tuple(replace(each, sharing=Sharing.TIME_SLICING, replicas=4) for each in gpus(16 * GIB, 16 * GIB))
    held = (Held("main", "nvidia.com/gpu", key(devices[0]), replicas=2),)
    main = DeclaredContainer("main", limits={"nvidia.com/gpu": "2"})
    asked = DeclaredPod("u", "n", "p", containers=(main,), held=held)
    node = NodeFacts(labels={"nvidia.com/gpu.sharing-strategy": "time-slicing"})
    (without,) = resolve(asked, node, devices, builtin()).limits
    assert (without.bytes, without.system) == (None, "nvidia-timeslicing")
    (shared,) = resolve(asked, node, devices, builtin(), options=Options(fair_share=True)).limits
    assert (shared.bytes, shared.system, shared.source.value) == (8 * GIB, "gpusteward", "policy")
    assert shared.enforceable


def test_users_may_lower_their_own(pod: Pod, gpus: Gpus) -> None:
    """An annotation below the resource counts, without a word of contradiction; one above it does not count."""
    annotation = "nvidia.com/container.main.gpu-memory.limit"
    devices = gpus(16 * GIB)
    (low,) = resolve(
        pod({"nvidia.com/gpumem": "8192"}, annotations={annotation: "4Gi"}), None, devices, builtin()
    ).limits
    assert (low.bytes, low.system, low.problems) == (4 * GIB, "gpusteward", ())
    (high,) = resolve(
        pod({"nvidia.com/gpumem": "8192"}, annotations={annotation: "12Gi"}), None, devices, builtin()
    ).limits
    assert (high.bytes, high.system) == (8 * GIB, "hami-nvidia")
    assert any("can only lower the limit" in candidate.why for candidate in high.candidates)


def test_contradictions_take_the_smaller(pod: Pod, gpus: Gpus) -> None:
    """A scheduler that writes less than the pod asked for is believed, and the contradiction is reported."""
    uuid = "GPU-00000000-1111-2222-3333-444444444444"
    asked = pod(
        {"nvidia.com/gpumem": "8192"}, annotations={"hami.io/vgpu-devices-allocated": f"{uuid},NVIDIA,5000,0:;"}
    )
    (limit,) = resolve(asked, None, gpus(16 * GIB), builtin()).limits
    assert limit.bytes == 5000 * MIB
    assert any("contradict" in problem for problem in limit.problems)


def test_precedence_inside_a_system(pod: Pod, gpus: Gpus) -> None:
    """MiB win over percent in HAMi, percent over MiB in Volcano, ratio over bytes in Koordinator."""
    devices = gpus(16 * GIB)
    cases = [
        ({"nvidia.com/gpumem": "8192", "nvidia.com/gpumem-percentage": "10"}, 8 * GIB),
        ({"nvidia.com/gpumem": "0", "nvidia.com/gpumem-percentage": "25"}, 4 * GIB),
        ({"volcano.sh/vgpu-memory": "1024", "volcano.sh/vgpu-memory-percentage": "50"}, 8 * GIB),
        ({"koordinator.sh/gpu-memory": "1Gi", "koordinator.sh/gpu-memory-ratio": "50"}, 8 * GIB),
    ]
    for resources, expected in cases:
        (limit,) = resolve(pod(resources), None, devices, builtin()).limits
        assert limit.bytes == expected, resources


def test_a_switched_off_hook_is_no_enforcement(pod: Pod, gpus: Gpus) -> None:
    """CUDA_DISABLE_CONTROL in the pod: HAMi's library does nothing, and the answer says so."""
    devices = gpus(16 * GIB)
    (kept,) = resolve(pod({"nvidia.com/gpumem": "8192"}), None, devices, builtin()).limits
    assert kept.enforced_by == "hook"
    (off,) = resolve(
        pod({"nvidia.com/gpumem": "8192"}, env={"CUDA_DISABLE_CONTROL": "true"}), None, devices, builtin()
    ).limits
    assert off.enforced_by == "none"
    assert any("CUDA_DISABLE_CONTROL" in problem for problem in off.problems)


def test_a_switched_off_hook_of_a_claim_or_pod(gpus: Gpus) -> None:
    """A limit of a claim or of the pod is not kept where one of the containers concerned has switched the hook off."""
    off, on = {"CUDA_DISABLE_CONTROL": "1"}, {"CUDA_DISABLE_CONTROL": "false"}
    device = ClaimedDevice("gpu", "hami-core-gpu.project-hami.io", "node", "hami-gpu-0", "s", {"memory": "4Gi"})
    claim = Claim("n", "half", (device,))

    def guard(user: dict[str, str], other: dict[str, str]) -> str:
        containers = (DeclaredContainer("a", env=user, claims=(ClaimUse("gpu"),)), DeclaredContainer("b", env=other))
        asked = DeclaredPod("u", "n", "p", containers=containers, claims={"gpu": "half"})
        return resolve(asked, None, gpus(16 * GIB), builtin(), claims=[claim]).limits[0].enforced_by.value

    assert [guard(on, on), guard(off, on), guard(on, off)] == ["hook", "none", "hook"]
    isolated = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
    main = DeclaredContainer("main", limits={"koordinator.sh/gpu-memory": "4Gi"}, env=off)
    (limit,) = resolve(DeclaredPod("u", "n", "p", isolated, containers=(main,)), None, (), builtin()).limits
    assert limit.enforced_by == "none"


def test_a_default_holds_where_nothing_else_is_said(gpus: Gpus) -> None:
    """MPS' default for a claim holds on the devices that have no limit of their own."""
    devices = gpus(16 * GIB, 16 * GIB)
    claimed = tuple(ClaimedDevice("gpu", "gpu.nvidia.com", "node", f"gpu-{index}") for index in range(2))
    mps = {"defaultPinnedDeviceMemoryLimit": "10Gi", "defaultPerDevicePinnedMemoryLimit": {"1": "6Gi"}}
    config = ClaimConfig("gpu.nvidia.com", (), {"sharing": {"strategy": "MPS", "mpsConfig": mps}})
    claim = Claim("team-a", "shared", claimed, (config,))
    found = resolve(user_of_claim("a"), None, devices, builtin(), claims=[claim])
    limits = [found.on(key(device), "main", scope=Scope.PROCESS) for device in devices]
    assert [limit.bytes for limit in limits if limit] == [10 * GIB, 6 * GIB]


def test_two_keys_of_one_pattern(pod: Pod) -> None:
    """A pattern that finds two keys makes two candidates, each with its own key."""
    asked = pod({"baidu.com/v100_32g_cgpu_memory": "10", "baidu.com/t4_16g_cgpu_memory": "10"})
    (limit,) = resolve(asked, None, (), builtin()).limits
    found = sorted(candidate.key for candidate in limit.candidates)
    assert found == ["baidu.com/t4_16g_cgpu_memory", "baidu.com/v100_32g_cgpu_memory"]


def test_a_bypassed_hook_shows(pod: Pod, gpus: Gpus) -> None:
    """Usage above a limit that another system enforces is a bypass. Without such a system there is no bypass."""
    devices = gpus(16 * GIB)
    (hooked,) = resolve(pod({"nvidia.com/gpumem": "8192"}), None, devices, builtin()).limits
    ceiling = 8 * GIB + 256 * MIB
    assert bypassed(hooked, 9 * GIB, ceiling)
    assert not bypassed(hooked, 8 * GIB + MIB, ceiling)
    (free,) = resolve(pod({"koordinator.sh/gpu-memory": "8Gi"}), None, devices, builtin()).limits
    assert not bypassed(free, 16 * GIB, ceiling)


def test_sidecars_and_init_containers() -> None:
    """A pod needs the sum of all that stay, or what its largest init container needs."""

    def pod(**amounts: tuple[str, bool, bool]) -> DeclaredPod:
        containers = tuple(
            DeclaredContainer(name, limits={"koordinator.sh/gpu-memory": size}, init=init, stays=stays)
            for name, (size, init, stays) in amounts.items()
        )
        return DeclaredPod("u", "n", "p", containers=containers)

    first = pod(setup=("6Gi", True, False), sidecar=("1Gi", True, True), main=("3Gi", False, True))
    second = pod(setup=("2Gi", True, False), sidecar=("1Gi", True, True), main=("3Gi", False, True))
    limits = [resolve(each, None, (), builtin()).limits[0].bytes for each in (first, second)]
    assert limits == [6 * GIB, 4 * GIB]


def test_a_record_of_devices_frees_no_other(resolved: Resolved, gpus: Gpus) -> None:
    """An index in an annotation, which any user may patch, says where. The resource's limit holds on any device."""
    devices = gpus(7500 * MIB, 7500 * MIB)  # 14 GiB, as the node of gpushare advertises
    for system, pod, container in (("gpushare", "binpack-1-0", ""), ("elastic-gpu", "cuda-gpu-test", "cuda")):
        found = resolved(system, pod, devices=devices)
        (named,) = found.limits
        assert named.device == devices[0].key
        elsewhere = found.on(key(devices[1]), container)
        assert elsewhere is not None
        assert elsewhere.bytes == named.bytes


def test_every_candidate_is_listed_once(resolved: Resolved, gpus: Gpus) -> None:
    """What holds on each device is looked at once for each of them."""
    for limit in resolved("elastic-gpu", "two-cards", devices=gpus(GIB, 2 * GIB)).limits:
        names = [candidate.name for candidate in limit.candidates]
        assert len(names) == len(set(names)) == 1


def test_a_pods_limit_stands_for_its_containers(gpus: Gpus) -> None:
    """ACK writes the pod's limit and its containers' shares of it: the same memory, declared once."""
    devices = gpus(16 * GIB)
    main = DeclaredContainer("main", limits={"aliyun.com/gpu-mem": "8"})
    allocation = {"scheduler.framework.gpushare.allocation": '{"0":{"0":8}}', "ALIYUN_COM_GPU_MEM_IDX": "0"}
    asked = DeclaredPod("u", "n", "p", annotations=allocation, containers=(main,))
    node = NodeFacts({"aliyun.com/gpu-mem": "16"}, labels={"ack.node.gpu.schedule": "share"})
    found = resolve(asked, node, devices, builtin())
    assert {limit.scope for limit in found.limits} == {Scope.POD, Scope.CONTAINER}
    assert declared([found.limits]) == {devices[0].key: 8 * GIB}


def test_what_declares_nothing_is_undeclared(pod: Pod, gpus: Gpus) -> None:
    """A replica, a zero and a share of the compute alone declare no memory; an unreadable text does declare."""
    sliced = gpus(16 * GIB, sharing=Sharing.TIME_SLICING, replicas=4)
    annotation = "nvidia.com/container.main.gpu-memory.limit"
    cases = [
        (pod({"nvidia.com/gpu": "1"}), True),
        (pod({"nvidia.com/gpu.shared": "1"}), True),
        (pod({"nvidia.com/gpumem": "0"}), True),
        (pod({"nvidia.com/gpucores": "30"}), True),
        (pod(env={"NVIDIA_VISIBLE_DEVICES": "all"}), True),
        (pod({"nvidia.com/gpu": "1"}, annotations={annotation: "8 what?"}), False),
        (pod({"nvidia.com/gpu": "1"}, annotations={annotation: "4Gi"}), False),
        (pod({"nvidia.com/gpumem": "3"}), False),
    ]
    for asked, expected in cases:
        (limit,) = resolve(asked, None, sliced, builtin()).limits
        assert limit.undeclared == expected, asked
    node = NodeFacts(labels={"nvidia.com/gpu.sharing-strategy": "mps"})
    (limit,) = resolve(pod({"nvidia.com/gpu": "1"}), node, (), builtin()).limits
    assert (limit.bytes, limit.scope, limit.undeclared) == (None, Scope.PROCESS, False)
