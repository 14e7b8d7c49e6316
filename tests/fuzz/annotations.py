"""
Fuzz target: texts of users that declare limits, in each format that a sharing system has.

In: a decoder and a text for it; then keys of the catalogue with texts, for a pod that also asks for a resource.
The promise:
- A decoder answers or raises DeclarationError with one printable line. It names only containers of the pod. Each number
  of its answer stands in the text, so no amount is invented. An answer of a list format, written again, is the same.
- A pod always has an answer. Its annotations, labels and environment neither raise nor remove the limit of its
  resource. No limit is above the device or below a MiB.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

from exporter.base.quantities import QuantityError, parse_quantity
from exporter.limits import LeafDevice, resolve
from exporter.limits.decoders import DECODERS, decode
from exporter.limits.decoding import MOST, Amount, Asked, DeclarationError, Scene
from exporter.limits.loading import builtin
from exporter.limits.rows import Row, What
from exporter.model import (
    Claim,
    ClaimConfig,
    ClaimedDevice,
    DeclaredContainer,
    DeclaredPod,
    DeviceKey,
    GpuUuid,
    Mechanism,
    NodeFacts,
)
from fuzz.drawing import Draw

MIB, GIB = 2**20, 2**30
MESSAGE = 1600
CATALOGUE = builtin()
NAMES = sorted(DECODERS)
WHATS = (What.MEMORY, What.COMPUTE, What.DEVICE)
DEVICES = tuple(
    LeafDevice(DeviceKey(GpuUuid(f"GPU-{index}")), index, minor=index, memory=16 * GIB) for index in range(2)
)
_ASKED = {
    "huawei.com/Ascend910B3": "1",
    "gpu.intel.com/i915": "1",
    "volcano.sh/vgpu-number": "1",
    "cambricon.com/mlu": "1",
}
_CLAIMED = tuple(
    ClaimedDevice("gpu", "gpu.nvidia.com", "node", f"gpu-{index}", uuid=f"GPU-{index}") for index in range(2)
)
_CLAIM = Claim("n", "claim", _CLAIMED, (ClaimConfig("gpu.nvidia.com", (), {"sharing": {"strategy": "MPS"}}),))
PODS = (
    DeclaredPod("u", "n", "p", containers=(DeclaredContainer("main", limits=_ASKED),)),
    DeclaredPod(
        "u",
        "n",
        "p",
        containers=(
            DeclaredContainer("init", init=True, stays=False),
            DeclaredContainer("main", limits=_ASKED),
            DeclaredContainer("side"),
        ),
    ),
)
LISTS = {"hami", "vgpu-manager", "koordinator", "ack", "metax", "ascend", "cambricon", "per-container"}
"""Decoders of lists, whose amounts are numbers of the text as they stand."""
_JSON = {"koordinator", "ack", "metax", "ascend"}
_NUMBER = re.compile(r"[0-9.eE+\-]+[A-Za-z]*", re.ASCII)

_LIMIT = 4 * GIB
_NODE = NodeFacts({"nvidia.com/gpu": "20"}, annotations={"hami.io/node-nvidia-register": ""})
_HOLDER = DeclaredContainer("main", limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": str(_LIMIT // MIB)})
_WRITTEN = {Mechanism.ANNOTATION, Mechanism.LABEL, Mechanism.ENV}
KEYS = sorted(
    {
        (row.key.replace("*", star), row.mechanism)
        for system in CATALOGUE
        for row in system.rows
        if row.mechanism in _WRITTEN
        for star in (("main", "0") if "*" in row.key else ("",))
    }
)


def check(data: bytes) -> None:
    """Decode one text; then resolve a pod with some."""
    draw = Draw(data)
    if draw.below(4) == 0:
        _check_pod(draw)
    else:
        _check_decoder(draw)


def _check_decoder(draw: Draw) -> None:
    name, what, pod, text = draw.one_of(NAMES), draw.one_of(WHATS), draw.one_of(PODS), draw.line()
    row = Row(mechanism=Mechanism.ANNOTATION, key="k", what=what, decoder=name)
    asked = Asked(Scene(CATALOGUE[0], pod, devices=DEVICES, claims=(_CLAIM,)), row, "k", pod.containers[-1])
    asked = replace(asked, stars=(draw.line(),), claim=_CLAIM, claimed=_CLAIMED)
    amounts = _decoded(text, asked)
    if amounts is None:
        return
    assert len(amounts) <= MOST
    names = {None, *(container.name for container in pod.containers)}
    for amount in amounts:
        assert amount.value is None or amount.value >= 0, amount
        assert amount.container in names, amount
        assert amount.where is None or amount.where.index is None or 0 <= amount.where.index <= 2**31, amount
    if name in LISTS:
        numbers = set(_numbers(text, name))
        assert all(amount.value is None or amount.value in numbers for amount in amounts), "an invented amount"
    if name in {"hami", "vgpu-manager"}:
        again = _written(name, amounts, pod)
        assert _decoded(again, asked) == amounts, again


def _decoded(text: str, asked: Asked) -> tuple[Amount, ...] | None:
    try:
        return decode(text, asked)
    except DeclarationError as error:
        assert str(error).isprintable() and 0 < len(str(error)) < MESSAGE, "a reason of more than one line"
        return None


def _numbers(text: str, name: str) -> Iterator[Fraction]:
    if name in _JSON:
        yield from _leaves(json.loads(text))
    for found in _NUMBER.findall(text):
        yield from _quantity(found)
        yield from (number for part in found.split("e") for number in _quantity(part))


def _leaves(data: Any) -> Iterator[Fraction]:
    if isinstance(data, dict | list):
        for part in data.values() if isinstance(data, dict) else data:
            yield from _leaves(part)
    else:
        yield from _quantity(data if isinstance(data, str) else repr(data))


def _quantity(text: str) -> Iterator[Fraction]:
    try:
        yield parse_quantity(text)
    except QuantityError:
        return


def _written(name: str, amounts: tuple[Amount, ...], pod: DeclaredPod) -> str:
    """Write amounts in the form of a list, each container with its own."""

    def of(container: DeclaredContainer) -> Iterator[str]:
        for amount in amounts:
            if amount.container == container.name and amount.value is not None:
                value = _decimal(amount.value)
                uuid = amount.where.uuid or "" if amount.where else ""
                yield f"{uuid},x,{value},{value}" if name == "hami" else f"0_{uuid}_{value}_{value}"

    named = [amount.container for amount in amounts]
    if name == "vgpu-manager":
        order = [pod.container(container or "") for container in dict.fromkeys(named)]
        return ";".join(f"{each.name}[{','.join(of(each))}]" for each in order if each is not None)
    return "".join(f"{''.join(f'{device}:' for device in of(container))};" for container in pod.containers)


def _decimal(value: Fraction) -> str:
    digits = f"{int(value * 10**9):010d}"
    return f"{digits[:-9]}.{digits[-9:]}"


def _check_pod(draw: Draw) -> None:
    written: dict[Mechanism, dict[str, str]] = {mechanism: {} for mechanism in _WRITTEN}
    for _ in range(4):
        if draw:
            key, mechanism = draw.one_of(KEYS)
            written[mechanism][key] = draw.line()
    holder = replace(_HOLDER, env=written[Mechanism.ENV])
    pod = DeclaredPod("u", "n", "p", written[Mechanism.LABEL], written[Mechanism.ANNOTATION], (holder,))
    found = resolve(pod, _NODE, DEVICES, CATALOGUE)
    for device in DEVICES:
        assert device.key is not None
        limit = found.on(device.key, "main")
        assert limit is not None and limit.bytes is not None, f"no limit on {device.key.uuid}"
        # The scheduler's annotation may show a factor of the installation, also a forged one: docs/evasions.md.
        factor = max((one.factor or 1 for one in limit.candidates if one.taken), default=1)
        assert MIB <= limit.bytes <= _LIMIT * factor, limit
    for limit in (*found.limits, *found.elsewhere):
        assert limit.bytes is None or MIB <= limit.bytes <= 4 * 2**40, limit
        assert limit.compute is None or 0 < limit.compute <= 1, limit
        assert all(problem.isprintable() for problem in limit.problems), limit.problems
