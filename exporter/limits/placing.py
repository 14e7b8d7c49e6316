"""
Where a pod's limits count: on the devices where its containers are.

What comes in: resolved limits, and the devices on which each container is seen. What goes out: limits, each on one
device.

The rule: a limit that names a device counts there. A limit that names none counts wherever its holder is, but on no
device of another vendor. Pure.
"""

from collections.abc import Callable, Iterable
from dataclasses import replace

from exporter.limits.answers import Resolution, ResolvedLimit, Subject
from exporter.limits.devices import Place, device_name
from exporter.model import DeviceKey, Scope


def placed(
    resolution: Resolution,
    seen: Iterable[tuple[str, DeviceKey]],
    foreign: Callable[[ResolvedLimit, DeviceKey], bool],
    *,
    expected: bool,
) -> tuple[ResolvedLimit, ...]:
    """
    Put the limits of a pod on the devices where its containers are seen.

    Unless the pod terminates (`expected` is False), limits also count on the devices that they name.

    A limit without a device is not put on one of another vendor (`foreign`), because a pod may hold GPUs of two
    vendors. Limits of container and pod stay apart, and so do those of a process and its container. If the pod
    declares an amount, a container that only has the device (as by KubeShare's `NVIDIA_VISIBLE_DEVICES`) is not
    listed as undeclared.
    """
    limits: dict[tuple[Subject, bool, DeviceKey], ResolvedLimit] = {}
    for limit in resolution.limits if expected else ():
        if limit.device is not None:
            key = (limit.subject, limit.scope is Scope.PROCESS, limit.device)
            limits[key] = min(limits.get(key, limit), limit, key=ResolvedLimit.strictness)
    for container, device in sorted(seen, key=lambda pair: (pair[0], pair[1].uuid, pair[1].gpu_instance or -1)):
        for name, scope in ((container, None), (container, Scope.PROCESS), ("", None)):
            on = resolution.on(device, name, scope=scope, foreign=foreign)
            if on is not None:
                key = (on.subject, on.scope is Scope.PROCESS, device)
                here = replace(on, place=Place(device_name(device), device))
                limits[key] = min(limits.get(key, here), here, key=ResolvedLimit.strictness)
    pods = {
        device for (subject, _, device), limit in limits.items() if subject == Subject() and limit.bytes is not None
    }
    return tuple(limit for (_, _, device), limit in limits.items() if device not in pods or not _hands_out_only(limit))


def _hands_out_only(limit: ResolvedLimit) -> bool:
    return bool(limit.subject.container) and limit.undeclared and limit.compute is None
