"""
Kubernetes, asked once: the kubelet and the API server, as a preflight wants to know of them.

What comes in: the config. What goes out: what they answered, or `Failed`, for `checking` to judge; nothing rises.

The law: it asks what the daemon would ask, with the same code, and changes nothing.
"""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import msgspec

from exporter.base.clock import SystemClock
from exporter.check.cluster import ApiServer, NodeObject
from exporter.check.lines import Failed
from exporter.config import Config
from exporter.kube.allocations import AllocationsView
from exporter.kube.client import Client, credentials, segment
from exporter.kube.errors import KubeError, decoded
from exporter.kube.pod_resources import KubeletError, ask, socket_of
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
    What the API server said; None is what it was not asked, because it does not answer.

    `rights` are the exporter's own, `more` those that were asked for besides.
    """

    server: ApiServer | Failed
    rights: Mapping[Right, bool] | Failed | None = None
    more: Mapping[Right, bool] | Failed | None = None
    node: NodeObject | Failed | None = None


async def kubelet(config: Config, deadline: float) -> AllocationsView | Failed:
    """Ask the kubelet what it handed out."""
    try:
        return await ask(socket_of(config.node.kubelet_root), deadline=deadline)
    except KubeletError as error:
        return Failed(str(error))


async def api(config: Config, booted: str, deadline: float, more: Iterable[Right] = ()) -> Api:
    """
    Ask the API server who it is, what we may do, and about the node.

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
    return Failed(str(error), error.status)
