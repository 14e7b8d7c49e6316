"""
Fuzz target: an answer of the kubelet's pod-resources API, and what the daemon makes of it.

In: the messages of two answers in turn, as protobuf or as choices of pods, containers, resources and ids. The promise:
- A message is read whole, or refused with protobuf's `DecodeError`. Read, written and read again, it says the same.
- Each holding and claim is of a listed pod, and each of its ids stands in the message.
- An allocation is of a present GPU, and of a pod that is listed once. It has no more replicas than the pod has ids.
- After a restart of the kubelet a pod loses its devices only if the kubelet lists it again or another pod has one of
  them.
"""

from google.protobuf.message import DecodeError

from builders import gpu, memory
from exporter.kube.allocations import AllocationsView, HeldClaim, Holding, allocations, sharing, succeed, without_gone
from exporter.kube.pod_resources import _Codec, _view
from exporter.kube.proto import pod_resources_pb2 as api
from exporter.model import Gpu, GpuInstance
from fuzz.drawing import Draw

MIG = tuple(GpuInstance(number, "1g.10gb", (f"MIG-{number}",), memory()) for number in (7, 9))
GPUS: tuple[Gpu, ...] = (gpu(0, memory=memory()), gpu(1, memory=memory()), gpu(2, instances=MIG))
KEYS = {key for each in GPUS for key, _, _ in each.leaves()}
NAMES = ("a", "b", "pod-0", "main", "\N{SNOWMAN}", "", "x" * 300)
RESOURCES = (
    "nvidia.com/gpu",
    "nvidia.com/gpu.shared",
    "nvidia.com/mig-1g.10gb",
    "amd.com/gpu",
    "huawei.com/Ascend910",
    "",
)
IDS = (*(each.uuid for each in GPUS), "MIG-7", "MIG-9", "0", "nvidia0", "Ascend910-0", "gpu-0", "")
LABELS: tuple[dict[str, str], ...] = (
    {},
    {"nvidia.com/mps.capable": "true"},
    {"nvidia.com/gpu.sharing-strategy": "mps"},
)
_CODEC = _Codec()


def check(data: bytes) -> None:
    """Read two answers, one after the other."""
    draw = Draw(data)
    labels, how, length = draw.one_of(LABELS), draw.below(4), draw.below(4096)
    first = _answer(draw.take(length), built=bool(how & 1))
    second = _answer(draw.rest(), built=bool(how & 2))
    for view in (first, second):
        if view is not None:
            _check_allocations(view, labels)
    if first is not None and second is not None:
        _check_succeed(first, second, labels)


def _answer(data: bytes, *, built: bool) -> AllocationsView | None:
    if built:
        data = _built(Draw(data)).SerializeToString()
    try:
        message = _CODEC.decode(data, api.ListResponse)
        offered = _CODEC.decode(data, api.AllocatableResponse)
    except DecodeError:
        return None
    view = _view("v1", message, offered)
    assert _view("v1", api.ListResponse.FromString(message.SerializeToString()), offered) == view
    assert all(held.pod_name in view.pods for held in _entries(view))
    assert view.listed_twice <= view.pods
    texts = [text for held in view.holdings for text in held.device_ids]
    assert len(texts) == sum(len(d.device_ids) for p in message.pod_resources for c in p.containers for d in c.devices)
    assert all(text.encode() in data for text in texts), "an invented id"
    assert all(list(held.device_ids) == sorted(held.device_ids) for held in view.holdings)
    return view


def _entries(view: AllocationsView) -> list[Holding | HeldClaim]:
    return [*view.holdings, *view.claims]


def _built(draw: Draw) -> api.ListResponse:
    message = api.ListResponse()
    while draw:
        pod = message.pod_resources.add(name=draw.one_of(NAMES), namespace=draw.one_of(NAMES))
        for _ in range(draw.below(3)):
            container = pod.containers.add(name=draw.one_of(NAMES))
            for _ in range(draw.below(3)):
                resource = draw.one_of(RESOURCES)
                ids = [f"{draw.one_of(IDS)}{draw.one_of(('', '::0', '::1', '-0'))}" for _ in range(draw.below(4))]
                container.devices.add(resource_name=resource, device_ids=ids)
            for _ in range(draw.below(2)):
                claim = container.dynamic_resources.add(claim_name=draw.one_of(NAMES))
                claim.claim_resources.add(
                    driver_name=draw.one_of(("gpu.nvidia.com", "gpu.amd.com", "gpu.intel.com", "")),
                    pool_name=draw.one_of(NAMES),
                    device_name=draw.one_of(("gpu-0", "gpu-1", "gpu-2-mig-1g10gb-19-0", *NAMES)),
                )
    return message


def _check_allocations(view: AllocationsView, labels: dict[str, str]) -> None:
    held: dict[tuple[str, str, str], int] = {}
    for holding in view.holdings:
        key = holding.namespace, holding.pod, holding.container
        held[key] = held.get(key, 0) + len(holding.device_ids)
    for claim in view.claims:
        key = claim.namespace, claim.pod, claim.container
        held[key] = held.get(key, 0) + len(claim.devices)
    for found in allocations(view, GPUS):
        assert found.device in KEYS, found
        assert (found.namespace, found.pod) not in view.listed_twice, found
        assert 1 <= found.replicas <= held[found.namespace, found.pod, found.container], found
    finished = allocations(view, GPUS, finished=view.pods)
    assert not [found for found in finished if (found.namespace, found.pod) in view.pods]
    for device, (_, replicas) in sharing(view, GPUS, labels).items():
        assert device in KEYS
        assert replicas >= 1


def _check_succeed(before: AllocationsView, fresh: AllocationsView, labels: dict[str, str]) -> None:
    same = succeed(before, fresh, restarted=False)
    assert same.holdings == fresh.holdings and same.claims == fresh.claims, "memory without a restart"
    after = succeed(before, fresh, restarted=True)
    taken = {text for holding in fresh.holdings for text in holding.device_ids}
    kept = [(held.pod_name, held.container, held.resource, held.device_ids) for held in after.holdings]
    for held in before.holdings:
        if held.pod_name not in fresh.pods and taken.isdisjoint(held.device_ids):
            assert (held.pod_name, held.container, held.resource, held.device_ids) in kept, f"lost: {held}"
    remembered = [held for held in _entries(after) if held.remembered]
    assert not [held for held in remembered if held.pod_name in fresh.pods], "remembered and listed"
    _check_allocations(after, labels)
    gone = without_gone(after, ())
    assert (gone.holdings, gone.claims) == (fresh.holdings, fresh.claims)
