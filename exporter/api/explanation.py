"""
One pod explained: the sources of its limits, and its usage now; for `/api/v1/explain` and `gpusteward explain`.

What comes in: the latest snapshot, the resolution of the pod's limits, the policy's judgement. What goes out: the
explanation of `schema`, with a text for people in it.

The rule: `exporter.limits.explaining` words the candidates, as in the explanation of a file. An unknown fact is called
unknown. Of other pods the answer shows nothing but the names of pods that use GPUs.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence

from exporter.accounts.sharing import occupied, only_reserves
from exporter.api import schema
from exporter.api.document import Json, concerned, copied, describe_containers
from exporter.api.near import Names
from exporter.base.printable import printable
from exporter.limits import Resolution
from exporter.limits.decoding import shown
from exporter.limits.devices import device_name
from exporter.limits.explaining import as_data, as_text, size
from exporter.model import Device, Pod, PodUid, Sharing, Snapshot, Usage

NEW = 60.0
"""Seconds after its creation for which a pod without usage is said to be new."""
OLD = ", which is too old to describe the present"

Policy = Callable[[PodUid], Sequence[Json]]
"""The policy's judgement of a pod's containers: one object each, with any keys and `text`, one line for people."""


Actions = Callable[[str, str], Sequence[Json]]
"""The recent actions on pods of this namespace and name, the newest first; each has a `text`, one sentence."""


class PodNotHereError(LookupError):
    """
    The node has no such pod.

    Attributes:
        near: pods with names like it, as NAMESPACE/POD.
        actions: what this daemon did to pods of this name.

    """

    def __init__(self, message: str, near: tuple[str, ...], actions: Sequence[Json] = ()) -> None:
        super().__init__(message)
        self.near = near
        self.actions = actions


def explanation(
    snapshot: Snapshot,
    namespace: str,
    name: str,
    *,
    begin: schema.Head,
    resolution: Callable[[PodUid], Resolution | None],
    policy: Policy | None = None,
    actions: Actions | None = None,
    users: Callable[[], Names] | None = None,
) -> schema.Explanation:
    """
    Explain a pod; of several of one name the newest. Raises PodNotHereError.

    `begin` is the head of the snapshot; `users` gives its `gpu_users`, where they are kept for the round.
    """
    found = [pod for pod in snapshot.pods.values() if (pod.namespace, pod.name) == (namespace, name)]
    done = actions(namespace, name) if actions else ()
    if not found:
        raise _not_here(snapshot, f"{namespace}/{name}", users() if users else gpu_users(snapshot), done)
    pod = max(found, key=lambda pod: (not pod.terminating, pod.created_at))  # as `newest_by_name` of the accounts
    known = resolution(pod.uid)
    usages = [usage for usage in snapshot.usages if usage.subject.pod_uid == pod.uid]
    described = list(describe_containers(snapshot, usages))
    judged = None if policy is None else list(policy(pod.uid))
    notes = list(_notes(snapshot, pod, found, known))
    if _new(snapshot, pod, usages):
        age = max(0.0, snapshot.taken_at - pod.created_at)
        notes.append(f"the pod is {age:.0f} s old, and its usage was not read yet: ask again in a few seconds")
    lines = [
        *_used(
            snapshot,
            [(*each, _allowance(each[1], judged or ())) for each in zip(usages, described, strict=True)],
            f"{begin.age_seconds:.0f} s ago{OLD if begin.stale else ''}",
            new=_new(snapshot, pod, usages),
        ),
        *_bypassed(snapshot, pod),
        *_judged(judged, pod),
        *_acted(done, pod),
        *(f"  note: {note}" for note in notes),
    ]
    declared = as_text(known) if known else f"{printable(f'pod {namespace}/{name}')}\n"
    return copied(
        schema.Explanation,
        begin,
        namespace=namespace,
        pod=name,
        pod_uid=pod.uid,
        notes=notes,
        limits=as_data(known) if known else None,
        containers=described,
        policy=judged,
        actions=done,
        text=declared + "".join(f"{printable(line)}\n" for line in lines),
    )


def gpu_users(snapshot: Snapshot) -> Names:
    """Take apart the names of all pods that use a device, or were handed one."""
    return Names.of({f"{pod.namespace}/{pod.name}" for pod in concerned(snapshot)})


def _not_here(snapshot: Snapshot, wanted: str, users: Names, done: Sequence[Json]) -> PodNotHereError:
    near = users.near(wanted)
    like = f"; similar names: {', '.join(map(printable, near))}" if near else ""
    remembered = "" if snapshot.names_live else " among the last known names: their source does not answer now"
    what = f"no pod {shown(wanted)} on node {printable(snapshot.node)}{remembered}"
    acted = "".join(f"; this daemon acted on it, {printable(one['text'])}" for one in done[:1])
    return PodNotHereError(f"{what}{acted or like}", near, done)


def _notes(snapshot: Snapshot, pod: Pod, found: Sequence[Pod], known: Resolution | None) -> Iterator[str]:
    if known is None:
        new = "the pod or a device is new (ask again in a minute), or names.source has none"
        yield f"its declarations are unknown: {new}"
    if len(found) > 1:
        yield f"{len(found)} pods of this name are on the node; this is the newest, {pod.uid}"
    if pod.deleted:
        yield "the pod is gone: the API server has deleted it, and the daemon remembers it for five minutes"
    elif pod.terminating:
        yield "the pod is terminating"
    yield from _shared(snapshot, pod)
    if not snapshot.names_live:
        yield "the source of names does not answer: names and declarations are those that it reported last"


def _shared(snapshot: Snapshot, pod: Pod) -> Iterator[str]:
    """Say which other pods are on each of the pod's devices, where that affects its limit."""
    own = {(held.namespace, held.pod, held.device) for held in snapshot.allocations}
    mine = {usage.device for usage in snapshot.usages if usage.subject.pod_uid == pod.uid}
    mine |= {limit.device for limit in snapshot.limits if limit.pod_uid == pod.uid}
    occupants = occupied(snapshot.usages)
    for device in snapshot.devices:
        name = device_name(device.key)
        if only_reserves(pod, device.key, occupants) and (pod.namespace, pod.name, device.key) in own:
            yield f"{name}: this pod only reserves it for the pods of {pod.reservation}; it is neither user nor idle"
        elif device.key in mine:
            yield from (f"{name}: {bounds}" for bounds in _bounds(device))
            yield from (
                f"{name}: {other.namespace}/{other.name} reserves it for the pods of {other.reservation}"
                for other in snapshot.pods.values()
                if other.uid != pod.uid and other.reservation and (other.namespace, other.name, device.key) in own
            )


def _bounds(device: Device) -> Iterator[str]:
    if device.sharing is Sharing.SHARED:
        yield f"{device.pods} pods share this device without replicas of a device plugin: nothing limits any of them"
    elif device.key.gpu_instance is not None and device.pods > 1:
        yield f"{device.pods} pods share this instance; the hardware limits the instance as a whole, not each pod"
    elif device.key.gpu_instance is not None:
        yield "the hardware limits this instance, and no other pod uses it: a smaller limit is reported, not enforced"


def _new(snapshot: Snapshot, pod: Pod, usages: Sequence[Usage]) -> bool:
    """Tell whether the pod is so new that it may use more than was read."""
    return not usages and not pod.terminating and snapshot.taken_at - pod.created_at < NEW


def _allowance(container: schema.Container, judged: Sequence[Json]) -> int:
    """Return the bytes that the policy allows a container for CUDA contexts on its device; 0 without a policy."""
    place = container.container, container.container_id, container.uuid, container.gpu_instance
    of = ("container", "container_id", "uuid", "gpu_instance")
    found = (one.get("context_allowance_bytes") for one in judged if tuple(map(one.get, of)) == place)
    return next(found, 0) or 0


def _used(
    snapshot: Snapshot, usages: Iterable[tuple[Usage, schema.Container, int]], when: str, *, new: bool
) -> Iterator[str]:
    lines = [
        f"    {_who(usage.subject.container)} on {device_name(usage.device)}: "
        f"{', '.join(_figures(usage, described.memory_limit_bytes, allowance))}"
        for usage, described, allowance in usages
    ]
    known = snapshot.complete and snapshot.pid_domain_proven
    seen = "no usage was read yet" if new else "uses no device"
    nothing = seen if known else "its usage is unknown, because not every source answered"
    yield f"  uses, as of {when}:" if lines else f"  {nothing}, as of {when}"
    yield from lines


def _figures(usage: Usage, limit: int | None, allowance: int) -> Iterator[str]:
    used = usage.memory_used
    yield "memory unknown" if used is None else size(used)
    if usage.memory_peak is not None:
        yield f"at most {size(usage.memory_peak)}"
    if used is not None and limit is not None and used > limit:
        # The excess as the Events count it: above what is allowed for CUDA contexts, too.
        contexts = f" plus {size(allowance)} allowed for CUDA contexts" if allowance else ""
        excess = used - limit - allowance
        yield f"{f'{size(excess)} more than' if excess > 0 else 'within'} its limit of {size(limit)}{contexts}"
    if usage.sm is not None:
        yield f"{usage.sm:.0%} of the SMs"
    count = len(usage.processes)
    yield f"{count} process{'' if count == 1 else 'es'}" if usage.listed else "processes unknown"


def _who(container: str) -> str:
    return f"container {container}" if container else "the pod"


def _bypassed(snapshot: Snapshot, pod: Pod) -> Iterator[str]:
    for limit in snapshot.limits:
        if limit.pod_uid == pod.uid and limit.bypassed:
            who, device = _who(limit.container), device_name(limit.device)
            yield (
                f"    ! {who} is over its limit of {size(limit.memory)} on {device}: "
                f"the {limit.enforced_by} should enforce this limit, and does not"
            )


def _judged(judged: Sequence[Json] | None, pod: Pod) -> Iterator[str]:
    if judged is not None:
        why = ", because the pod is gone" if pod.deleted else ""
        yield "  policy:" if judged else f"  policy: nothing to judge{why}"
        yield from (f"    {one['text']}" for one in judged)


def _acted(done: Sequence[Json], pod: Pod) -> Iterator[str]:
    if done:
        yield "  actions of this daemon:"
    for one in done:
        earlier = "" if one["pod_uid"] == pod.uid else "an earlier pod of this name, "
        yield f"    {earlier}{one['text']}"
