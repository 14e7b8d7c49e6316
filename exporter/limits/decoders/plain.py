"""
Single numbers with rules of their own: formats of one system that are no list of devices.

What comes in: a resource's or an annotation's number, or MPS' environment. What goes out: amounts in the row's unit.

Sources: tkestack/gpu-manager pkg/services/allocator/nvidia (core >= 100 has no memory limit), Project-HAMi/HAMi
pkg/device/{metax,enflame,kunlun}, Huawei CCE cce_10_0965, Tencent TKE 457/127667 (qGPU).
"""

import re
from collections.abc import Iterable
from fractions import Fraction
from math import ceil

from exporter.limits.decoders.containers import one_each
from exporter.limits.decoding import Amount, Asked, DeclarationError, bounded, number, quantity, shown

_MIB, _GIB = 2**20, 2**30
_WHOLE = 100
_KUNLUN = (24576, 49152, 98304)
_ENFLAME_LARGEST = 48
"""GB of the largest Enflame profile that HAMi's config knows."""
_MPS_LIMIT = re.compile(r"([0-9]{1,4})=([0-9]{1,15})([GM])", re.ASCII)


def plain_or_quantity(text: str, asked: Asked) -> Iterable[Amount]:
    """Read one number: the decoder of rows that name none."""
    return [Amount(number(text) if asked.row.plain else quantity(text))]


def below_whole(text: str, asked: Asked) -> Iterable[Amount]:
    """Read gpu-manager's memory: for requests of 100 cores and more (a whole device) its limiter is off."""
    cores = asked.container.resources().get("tencent.com/vcuda-core", "0") if asked.container else "0"
    if quantity(cores) >= _WHOLE:
        note = "with vcuda-core of 100 and more the devices are whole, and memory has no limit"
        return [Amount(None, shared=True, note=note)]
    return [Amount(quantity(text))]


def fraction_of_device(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read CCE's fractional `nvidia.com/gpu: 100m`; other rows read whole numbers."""
    value = quantity(text)
    return [] if value.denominator == 1 else [Amount(value)]


def cards_of_percent(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read the number of GPUs that a percentage of compute needs: qGPU divides 160 between two."""
    return [Amount(Fraction(ceil(quantity(text) / _WHOLE)))]


def metax_memory(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read MetaX: a bare number is GiB, one with a letter is bytes, also the API server's `1k` for 1000."""
    value = quantity(text)
    return [Amount(value, unit=Fraction(1))] if re.search("[a-zA-Z]", text) else [Amount(value)]


def enflame_memory(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read Enflame: GB of the profile; a number above twice the largest profile is MiB."""
    value = quantity(text)
    return [Amount(value, unit=Fraction(_MIB))] if value > 2 * _ENFLAME_LARGEST else [Amount(value)]


def kunlun_memory(text: str, _asked: Asked) -> Iterable[Amount]:
    """Read Kunlunxin: MiB, rounded up to the size of a slice."""
    value = quantity(text)
    return [Amount(next((Fraction(size) for size in _KUNLUN if value <= size), value) if value else value)]


def per_container(text: str, asked: Asked) -> Iterable[Amount]:
    """Read VKE's list of counts, one per container: "1,2"."""
    counts = one_each(text.split(","), asked.scene.pod.regular, "counts")
    return [Amount(number(count), container=container) for count, container in counts]


def mps_limits(text: str, _asked: Asked) -> Iterable[Amount]:
    """
    Read `CUDA_MPS_PINNED_DEVICE_MEM_LIMIT`: "0=8G,1=4096M".

    The indices number the devices that the process sees, but the text does not say which devices these are. So the
    smallest limit counts on every device.
    """
    parts = text.split(",")
    bounded(len(parts))
    sizes = []
    for part in parts:
        match = _MPS_LIMIT.fullmatch(part.strip())
        if match is None:
            raise DeclarationError(f"{shown(part)!r} is not device=<number>M or G")
        sizes.append(int(match[2]) * (_GIB if match[3] == "G" else _MIB))
    return [Amount(Fraction(min(sizes)))]
