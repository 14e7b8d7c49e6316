"""
The kubelet's pod-resources API, asked over its unix socket every few seconds.

What comes in: the socket. What goes out: an `AllocationsView`, at once and from memory.

The rule: a whole answer or none. An answer that is cut short, garbled, too long or too late changes nothing: the last
view stays, with a fault that says why it is not live. Each request has a connection of its own (0.4 ms of CPU more). So
the next request reaches a restarted kubelet, which has a new socket. The kubelet limits all its clients together (100
requests a second), so requests are rare.
"""

import asyncio
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path
from typing import NoReturn, TypeVar

import structlog
from google.protobuf.message import DecodeError, Message
from grpclib.client import Channel
from grpclib.const import Cardinality, Status
from grpclib.encoding.proto import ProtoCodec
from grpclib.exceptions import GRPCError, ProtocolError, StreamTerminatedError

from exporter.kube.allocations import (
    AllocationsView,
    ClaimedDevice,
    HeldClaim,
    Holding,
    PodName,
    succeed,
    without_gone,
)
from exporter.kube.proto import pod_resources_pb2 as api
from exporter.model import Fault

log = structlog.get_logger()

INTERVAL = 5.0
"""Seconds between two requests. A pod holds its devices for life, so only its start can be missed, for so long."""
AWAY_INTERVAL = 1.0
"""Seconds between two requests while the kubelet does not answer."""
DEADLINE = 5.0
"""Seconds for both calls of a request. The kubelet answers in milliseconds, or hangs with its device manager."""
LARGEST = 16 * 2**20
"""Bytes of an answer, as other clients of this API permit: dense nodes exceeded gRPC's own limit of 4 MiB."""

_LOG = "look at the kubelet's log (journalctl -u kubelet)"

Answer = TypeVar("Answer", bound=Message)


class KubeletError(Exception):
    """The kubelet did not answer. `reason` is one word for metrics; `message` and `fix` are for people."""

    def __init__(self, reason: str, message: str, fix: str) -> None:
        super().__init__(message)
        self.reason = reason
        self.message = message
        self.fix = fix

    def __str__(self) -> str:
        """Say all of it."""
        return f"{self.message}; fix: {self.fix}"


def socket_of(kubelet_root: Path) -> Path:
    """Name the kubelet's socket. In a container, mount its folder: each start of the kubelet makes a new socket."""
    return kubelet_root / "pod-resources" / "kubelet.sock"


class PodResources:
    """Asks one kubelet. One task calls `run`; any code may call `view`, which never waits."""

    def __init__(self, socket: Path, *, interval: float = INTERVAL, deadline: float = DEADLINE) -> None:
        self._socket = socket
        self._interval = interval
        self._deadline = deadline
        self._view = AllocationsView(
            faults=(_fault(KubeletError("kubelet_unasked", "not asked yet", "wait some seconds"), socket),)
        )
        self._answered_by: tuple[int, int] | None = None

    def view(self) -> AllocationsView:
        """Return the kubelet's last answer."""
        return self._view

    async def run(self) -> None:
        """Ask until cancelled. If the kubelet is away, that is a fault in the view, never an exception."""
        while True:
            await self.ask()
            await asyncio.sleep(self._interval if self._view.live else min(AWAY_INTERVAL, self._interval))

    async def ask(self) -> None:
        """Ask once, now, and renew the view."""
        try:
            asked = _identity(self._socket)
            fresh = await ask(self._socket, deadline=self._deadline)
            answered = _identity(self._socket)
        except KubeletError as error:
            self._away(error)
            return
        before = self._view
        # A new socket shows a restart, and not a failed request: a kubelet may restart between two requests or during
        # one, and a kubelet that hung for a while is still the same.
        restarted = not asked == answered == self._answered_by
        self._answered_by = answered
        self._view = succeed(before, fresh, restarted=restarted)
        if not before.live:
            log.info("kubelet.answers", socket=str(self._socket), pods=len(fresh.pods))

    def _away(self, error: KubeletError) -> None:
        before = self._view
        if error.reason not in {fault.reason for fault in before.faults}:
            log.warning(
                "kubelet.away", reason=error.reason, message=error.message, fix=error.fix, socket=str(self._socket)
            )
        fault = _fault(error, self._socket, incomplete=not before.known)
        self._view = replace(before, live=False, faults=(fault,))

    def keep_only(self, living: Collection[PodName]) -> None:
        """Forget remembered pods that are gone. Called whenever the API server's list is live."""
        self._view = without_gone(self._view, living)


async def ask(socket: Path, *, deadline: float = DEADLINE) -> AllocationsView:
    """Ask a kubelet for its allocations, and for the devices that it offers. Raises KubeletError."""
    try:
        async with asyncio.timeout(deadline), Channel(path=str(socket), codec=_Codec()) as channel:
            version, listed = await _list(channel)
            return _view(version, listed, await _allocatable(channel))
    except TimeoutError as error:
        message = f"the kubelet did not answer within {deadline:g} s at {socket}"
        raise KubeletError("kubelet_slow", message, f"{_LOG}; a device plugin that hangs can delay it") from error
    except OSError as error:
        _raise_away(socket, error)
    except GRPCError as error:
        message = f"the kubelet refuses at {socket}: {error.status.name}: {error.message}"
        fix = f"{_LOG}; where other programs ask this socket too often, let them ask less"
        raise KubeletError("kubelet_refuses", message, fix) from error
    except (ProtocolError, StreamTerminatedError, DecodeError, AssertionError, NotImplementedError) as error:
        # AssertionError: grpclib's error for a message that ends before its length. NotImplementedError: compressed.
        message = f"the kubelet's answer at {socket} is cut short or garbled: {error or type(error).__name__}"
        fix = f"{_LOG}; check that node.kubelet_root is the kubelet's folder, and no other program has this socket"
        raise KubeletError("kubelet_garbled", message, fix) from error


async def _list(channel: Channel) -> tuple[str, api.ListResponse]:
    try:
        return "v1", await _call(channel, "v1", "List", api.ListResponse)
    except GRPCError as error:
        if error.status is not Status.UNIMPLEMENTED:
            raise
    # Before 1.20. Its messages are a subset of v1's; that kubelet reports no sidecars.
    return "v1alpha1", await _call(channel, "v1alpha1", "List", api.ListResponse)


async def _allocatable(channel: Channel) -> api.AllocatableResponse | None:
    """Return None if the kubelet does not know the call (before 1.21), or has its feature gate off (before 1.23)."""
    try:
        return await _call(channel, "v1", "GetAllocatableResources", api.AllocatableResponse)
    except GRPCError as error:
        gated = error.status is Status.UNKNOWN and "disabled" in (error.message or "")
        if error.status is not Status.UNIMPLEMENTED and not gated:
            raise
        return None


async def _call(channel: Channel, version: str, name: str, kind: type[Answer]) -> Answer:
    path = f"/{version}.PodResourcesLister/{name}"
    async with channel.request(path, Cardinality.UNARY_UNARY, api.Request, kind) as stream:
        await stream.send_message(api.Request(), end=True)
        answer: Answer | None = await stream.recv_message()
        if answer is None:
            await stream.recv_trailing_metadata()  # raises the server's error
            raise ProtocolError(f"no answer to {name}")
        return answer


class _Codec(ProtoCodec):  # type: ignore[misc]  # grpclib is not typed for us
    """Refuses answers that are longer than `LARGEST`: in Python they would take ten times as much."""

    def decode(self, data: bytes, message_type: type[Answer]) -> Answer:
        if len(data) > LARGEST:
            raise DecodeError(f"{len(data)} bytes, of which {LARGEST} are read")
        answer: Answer = message_type.FromString(data)
        return answer


def _view(version: str, listed: api.ListResponse, allocatable: api.AllocatableResponse | None) -> AllocationsView:
    names = Counter((pod.namespace, pod.name) for pod in listed.pod_resources)
    return AllocationsView(
        pods=frozenset(names),
        listed_twice=frozenset(name for name, count in names.items() if count > 1),
        holdings=tuple(holding for pod in listed.pod_resources for holding in _holdings(pod)),
        claims=tuple(claim for pod in listed.pod_resources for claim in _claims(pod)),
        api=version,
        allocatable=None if allocatable is None else _by_resource(allocatable.devices),
        known=True,
        live=True,
    )


def _holdings(pod: api.PodResources) -> tuple[Holding, ...]:
    return tuple(
        Holding(pod.namespace, pod.name, container.name, resource, ids)
        for container in pod.containers
        for resource, ids in _by_resource(container.devices).items()
    )


def _by_resource(devices: Collection[api.ContainerDevices]) -> dict[str, tuple[str, ...]]:
    by_resource: dict[str, list[str]] = {}
    for entry in devices:
        by_resource.setdefault(entry.resource_name, []).extend(entry.device_ids)
    # Sorted: the kubelet's order changes from answer to answer.
    return {resource: tuple(sorted(ids)) for resource, ids in by_resource.items()}


def _claims(pod: api.PodResources) -> tuple[HeldClaim, ...]:
    return tuple(
        HeldClaim(
            pod.namespace,
            pod.name,
            container.name,
            tuple(ClaimedDevice(d.driver_name, d.pool_name, d.device_name) for d in claim.claim_resources),
            claim=claim.claim_name,
        )
        for container in pod.containers
        for claim in container.dynamic_resources
    )


def _identity(socket: Path) -> tuple[int, int]:
    """Identify a socket file: each start of the kubelet makes a new one."""
    try:
        stat = socket.stat()
    except OSError as error:
        _raise_away(socket, error)
    return stat.st_ino, stat.st_ctime_ns


def _raise_away(socket: Path, error: OSError) -> NoReturn:
    fix = {
        FileNotFoundError: "set node.kubelet_root to the kubelet's --root-dir, and mount its folder pod-resources",
        PermissionError: "run the daemon as uid 0; it needs no capabilities for this socket",
    }.get(type(error), "check that the kubelet runs on the node (systemctl status kubelet)")
    message = f"the kubelet is away: {socket}: {error.strerror or error}"
    raise KubeletError("kubelet_away", message, fix) from error


def _fault(error: KubeletError, socket: Path, *, incomplete: bool = True) -> Fault:
    return Fault("allocations", error.reason, str(error), subject=str(socket), incomplete=incomplete)
