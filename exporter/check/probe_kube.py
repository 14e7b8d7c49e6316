"""
Asks Kubernetes once, for a preflight: the kubelet and the API server.

What comes in: the config. What goes out: the answers, or `Failed`, for `check.cluster` to judge. Nothing is raised.

The rule: it asks what the daemon would ask, with the same code, and changes nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from exporter.base.clock import SystemClock
from exporter.check import remedies
from exporter.check.cluster import ApiServer, NodeObject
from exporter.check.lines import Failed
from exporter.config import Config
from exporter.kube.allocations import AllocationsView
from exporter.kube.client import REQUEST, Client, segment
from exporter.kube.credentials import credentials
from exporter.kube.errors import KubeError, decoded
from exporter.kube.pod_resources import DEADLINE, KubeletError, ask, socket_of
from exporter.kube.rights import RIGHTS, Right


class _Version(msgspec.Struct, frozen=True, rename="camel"):
    git_version: str = "of unknown version"


class _NodeInfo(msgspec.Struct, frozen=True):
    boot_id: str = msgspec.field(default="", name="bootID")


class _NodeStatus(msgspec.Struct, frozen=True, rename="camel"):
    node_info: _NodeInfo = _NodeInfo()


class _Node(msgspec.Struct, frozen=True):
    status: _NodeStatus = _NodeStatus()


_VERSION = msgspec.json.Decoder(_Version)
_NODE = msgspec.json.Decoder(_Node)


@dataclass(frozen=True, slots=True)
class Api:
    """
    The API server's answers; None stands for a question that was not asked, because the server does not answer.

    `rights` are the exporter's own, `more` those of the mode.
    """

    server: ApiServer | Failed
    rights: Mapping[Right, bool] | Failed | None = None
    more: Mapping[Right, bool] | Failed | None = None
    node: NodeObject | Failed | None = None


async def kubelet(config: Config, deadline: float = DEADLINE) -> AllocationsView | Failed:
    """Ask the kubelet for its allocations."""
    try:
        return await ask(socket_of(config.node.kubelet_root), deadline=deadline)
    except KubeletError as error:
        return Failed(error.message, fix=error.fix)


async def api(config: Config, booted: str, more: Iterable[Right] = (), *, deadline: float = REQUEST) -> Api:
    """
    Ask the API server for its version, for our rights, and for the node.

    `booted` is this machine's boot id; `more`: rights that are used besides the exporter's.
    """
    client = Client(credentials(config.names.kubeconfig), clock=SystemClock(), deadline=deadline)
    try:
        version: _Version = decoded(_VERSION, await client.get("/version"))
        server = ApiServer(client.server, version.git_version)
        name = config.node.name
        granted, others, node = await asyncio.gather(
            _rights(client, RIGHTS, name), _rights(client, tuple(more), name), _node(client, name, booted)
        )
        return Api(server, granted, others, node)
    except KubeError as error:
        return Api(_failed(error))
    finally:
        await client.close()


async def _rights(client: Client, rights: tuple[Right, ...], node: str) -> Mapping[Right, bool] | Failed:
    asked = [client.may(r.verb, r.group, r.resource, name=node if r.own_node else None) for r in rights]
    try:
        return dict(zip(rights, await asyncio.gather(*asked), strict=True))
    except KubeError as error:
        return _failed(error)


async def _node(client: Client, name: str, booted: str) -> NodeObject | Failed:
    try:
        node: _Node = decoded(_NODE, await client.get(f"/api/v1/nodes/{segment(name)}"))
    except KubeError as error:
        return _failed(error)
    return NodeObject(node.status.node_info.boot_id, booted)


def _failed(error: KubeError) -> Failed:
    return Failed(str(error), error.status, remedies.of_api(error.status, error.reason))
