"""Laws of the resolver that hold for any declaration, and in any order."""

import string
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path

import msgspec
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from exporter.limits import LeafDevice, Options, Resolution, resolve
from exporter.limits.decoders import DECODERS, decode
from exporter.limits.decoding import Amount, Asked, DeclarationError, Scene
from exporter.limits.explaining import as_data, as_text
from exporter.limits.loading import builtin
from exporter.limits.node_devices import devices_of
from exporter.limits.patterns import match
from exporter.limits.rows import Row, What
from exporter.model import DeclaredContainer, DeclaredPod, DeviceKey, GpuUuid, Mechanism, NodeFacts, Scope
from exporter.objects.manifest import Manifest, read

FIXTURES = sorted((Path(__file__).parent / "fixtures").glob("*.yaml"))
CATALOGUE = builtin()
VENDORS = {system.name: system.vendor for system in CATALOGUE}
ROWS = {system.name: system.rows for system in CATALOGUE}
WHOLE = {Scope.CONTAINER, Scope.INSTANCE}
KEYS = sorted({row.key.replace("*", "main") for system in CATALOGUE for row in system.rows})
DEVICES = tuple(
    LeafDevice(DeviceKey(GpuUuid(f"GPU-{index}")), index, minor=index, memory=16 * 2**30) for index in range(2)
)


@cache
def known() -> list[Manifest]:
    """Read all fixtures, when a test begins: 50 ms, which an import of this file should not cost."""
    return [read(path.read_text()) for path in FIXTURES]


amounts = st.one_of(
    st.sampled_from(
        ["0", "1", "8", "100", "200", "3k", "16Gi", "500m", "-1", "1e30", "NaN", "", "0.5", "GPU-0,x,1,2:;"]
    ),
    st.text(max_size=40),
    st.from_regex(r"[0-9]{1,4}(Gi|Mi|k|m)?", fullmatch=True),
    st.just('{"gpu":[{"minor":0,"resources":{"koordinator.sh/gpu-memory":"1Gi"}}]}'),
)
pods = st.deferred(lambda: st.sampled_from([pod for found in known() for pod in found.pods]))
written = st.dictionaries(st.sampled_from(KEYS), amounts, max_size=5)
some = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def resolution_of(
    pod: DeclaredPod, node: NodeFacts | None = None, devices: tuple[LeafDevice, ...] = DEVICES
) -> Resolution:
    return resolve(pod, node, devices, CATALOGUE)


def pod_with(resources: dict[str, str], annotations: dict[str, str], env: dict[str, str]) -> DeclaredPod:
    return DeclaredPod(
        "u",
        "n",
        "p",
        annotations,
        annotations,
        (DeclaredContainer("main", limits=resources, env=env),),
        scheduler="kai-scheduler",
    )


@some
@given(resources=written, annotations=written, env=written, capacity=written, fair=st.booleans())
def test_total(
    resources: dict[str, str], annotations: dict[str, str], env: dict[str, str], capacity: dict[str, str], fair: bool
) -> None:
    """Whatever is written, there is an answer, it can be shown, and no limit in it is zero or more than a device."""
    node = NodeFacts(capacity, capacity, annotations, annotations)
    found = resolve(pod_with(resources, annotations, env), node, DEVICES, CATALOGUE, options=Options(fair_share=fair))
    assert as_text(found)
    assert len(as_data(found)) == len(found.limits)
    for limit in (*found.limits, *found.elsewhere):
        largest = 17 * 2**30 if VENDORS[limit.system] == "nvidia" else 4 * 2**40
        assert limit.bytes is None or 2**20 <= limit.bytes <= largest
        assert limit.compute is None or 0 < limit.compute <= 1


@some
@given(text=st.text(max_size=200) | amounts, name=st.sampled_from(sorted(DECODERS)), what=st.sampled_from(What))
def test_decoders_are_total(text: str, name: str, what: What) -> None:
    """A decoder answers or refuses with a reason; it never raises, and never makes a negative amount."""
    row = Row(mechanism=Mechanism.ANNOTATION, key="k", what=what, decoder=name)
    pod = pod_with({"huawei.com/Ascend910B3": "1", "gpu.intel.com/i915": "1"}, {}, {})
    scene = Scene(CATALOGUE[0], pod, devices=DEVICES)
    asked = Asked(scene, row, "k", container=pod.containers[0])
    amounts: tuple[Amount, ...] = ()
    reason = "an answer"
    try:
        amounts = decode(text, asked)
    except DeclarationError as error:
        reason = str(error)
    assert reason
    assert all(amount.value is None or amount.value >= 0 for amount in amounts)


orders = st.deferred(lambda: st.tuples(*(st.permutations(system.rows) for system in CATALOGUE)))
"""The rows of each system in any order. Made once: 52 strategies in each example take longer than both answers."""


@some
@given(resources=written, annotations=written, systems=st.permutations(range(len(CATALOGUE))), rows=orders)
def test_order_does_not_matter(
    resources: dict[str, str], annotations: dict[str, str], systems: list[int], rows: tuple[list[Row], ...]
) -> None:
    """Neither the order of rows, nor that of keys, nor that of devices changes the limits."""
    pod = pod_with(resources, annotations, {})
    shuffled = tuple(msgspec.structs.replace(CATALOGUE[index], rows=tuple(rows[index])) for index in systems)
    turned = pod_with(dict(reversed(resources.items())), dict(reversed(annotations.items())), {})
    here = resolve(pod, None, DEVICES, CATALOGUE)
    there = resolve(turned, None, tuple(reversed(DEVICES)), shuffled)
    assert as_data(here) == as_data(there)


@some
@given(pod=pods, key=st.text(string.ascii_lowercase, min_size=1, max_size=20), text=amounts)
def test_unknown_annotation_changes_nothing(pod: DeclaredPod, key: str, text: str) -> None:
    """An annotation that no row names declares nothing."""
    name = f"example.com/{key}"
    assert not any(match(row.key, name) for system in CATALOGUE for row in system.rows)
    more = replace(pod, annotations={**pod.annotations, name: text}, labels={**pod.labels, name: text})
    assert resolution_of(more, devices=()) == resolution_of(pod, devices=())


@some
@given(index=st.integers(0, len(FIXTURES) - 1), key=st.sampled_from(KEYS), text=amounts)
@example(index=0, key="nvidia.com/gpu-memory.container.main.limit", text="16Gi")
def test_a_lower_source_never_raises(index: int, key: str, text: str) -> None:
    """
    No added annotation, label or variable raises a limit from a claim or a resource that is certain.

    One in doubt is reported, and never acted on: a pod's own sure declaration takes its place (`_amount`).
    """
    found = known()[index]
    node = found.nodes[0] if found.nodes else None
    devices = devices_of(node) if node else ()
    for pod in found.pods:
        before = resolve(pod, node, devices, CATALOGUE, claims=found.claims)
        more = replace(
            pod,
            annotations={key: text, **pod.annotations},
            labels={key: text, **pod.labels},
            containers=tuple(replace(each, env={key: text, **each.env}) for each in pod.containers),
        )
        after = resolve(more, node, devices, CATALOGUE, claims=found.claims)
        for limit in before.limits:
            if limit.bytes is None or limit.report_only or limit.source.value not in {"claim", "resource"}:
                continue
            same = [
                other
                for other in (*after.limits, *after.elsewhere)
                if other.subject == limit.subject
                and (other.scope is limit.scope or {other.scope, limit.scope} == WHOLE)
                and other.place in {limit.place, None}
                and other.vendor in {"", limit.vendor}
            ]
            assert same, (pod.name, key, text)
            assert all(other.bytes is not None and other.bytes <= limit.bytes for other in same)


def bounds(found: Resolution, devices: Iterable[LeafDevice]) -> dict[tuple[str, str], int]:
    """The bytes that each container, and the pod as a whole, is held to on each device; without those only reported."""
    vendors = {device.key: device.vendor for device in devices if device.key is not None}
    names = {limit.subject.container for limit in (*found.limits, *found.elsewhere)}
    held: dict[tuple[str, str], int] = {}
    for device, name in product(vendors, names):
        limit = found.on(device, name, foreign=lambda each, key: each.vendor not in {"", vendors[key]})
        if limit is not None and limit.bytes is not None and not limit.report_only:
            held[str(device), name] = limit.bytes
    return held


def index_of(name: str) -> int:
    return next(index for index, path in enumerate(FIXTURES) if path.stem == name)


HAMI, ASCEND = "hami.io/vgpu-devices-allocated", "huawei.com/scheduler.softShareDev.hbmQuota"


def least(held: Mapping[tuple[str, str], int], device: str, name: str) -> float:
    return min((held[device, each] for each in {name, ""} if (device, each) in held), default=float("inf"))


@some
@given(index=st.integers(0, len(FIXTURES) - 1), key=st.sampled_from(KEYS), text=st.none() | amounts)
@example(index=index_of("kai"), key="gpu-fraction", text=None)
@example(index=index_of("kai"), key="gpu-fraction", text="x")
@example(index=index_of("tensor-fusion"), key=HAMI, text="x")
@example(index=index_of("tensor-fusion"), key=HAMI, text="GPU-0,NVIDIA,16000,0:;")
@example(index=index_of("tensor-fusion"), key=ASCEND, text="1")
def test_what_a_tenant_writes_never_raises_a_limit(index: int, key: str, text: str | None) -> None:
    """
    No annotation or label lets a pod hold more, or takes its limit: not while it runs, whatever is added or taken away.

    Nor when it is created, by what another system reads, of the same vendor or of another one.
    """
    found = known()[index]
    node = found.nodes[0] if found.nodes else None
    devices = (devices_of(node) if node else ()) or DEVICES
    for pod in found.pods:
        before = resolve(pod, node, devices, CATALOGUE, claims=found.claims)
        written = [{name: value for name, value in of.items() if name != key} for of in (pod.annotations, pod.labels)]
        added = {} if text is None else {key: text}
        more = replace(pod, annotations={**written[0], **added}, labels={**written[1], **added})
        running = resolve(more, node, devices, CATALOGUE, before.first_seen, claims=found.claims)
        created = resolve(more, node, devices, CATALOGUE, claims=found.claims)
        own = key in {each.key.replace("*", "main") for limit in before.limits for each in ROWS[limit.system]}
        for now in (running,) if own or key in {*pod.annotations, *pod.labels} else (running, created):
            held, after = bounds(before, devices), bounds(now, devices)
            for (device, name), amount in held.items():
                assert least(after, device, name) <= amount, (pod.name, device, name, amount, now.limits)
