"""
The cluster: kubelet, API server, rights, the node's name, and other sources of names.

What comes in: what they answered. What goes out: a line for each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.check.lines import Failed, Line, Verdict, advised, count, worst
from exporter.kube.allocations import AllocationsView
from exporter.kube.rights import Right
from exporter.model import Inventory

_SHIPPED = "the shipped ClusterRole has them"
_STATUS = {
    401: "the token is not accepted: is the ServiceAccount still there?",
    403: "grant the right, see deploy/exporter/rbac.yaml",
}


@dataclass(frozen=True, slots=True)
class ApiServer:
    """An API server that answered with our credentials."""

    url: str
    version: str


@dataclass(frozen=True, slots=True)
class NodeObject:
    """The boot ids: the one that the node was registered with ("" when it has none), and this machine's."""

    registered: str
    booted: str


def kubelet(view: AllocationsView | Failed) -> Line:
    """Judge the kubelet's answer."""
    if isinstance(view, Failed):
        return Line("kubelet", Verdict.FAIL, view.message)
    devices = sum(len(holding.device_ids) for holding in view.holdings) + sum(len(c.devices) for c in view.claims)
    message = f"pod-resources {view.api} answers: {count(len(view.pods), 'pod')}, {count(devices, 'device')} handed out"
    if view.api != "v1":
        message += "; this kubelet is older than 1.20: what its sidecars hold is not told"
    elif view.allocatable is None:
        message += "; it cannot tell what it offers (before 1.23): numbers of replicas are lower bounds"
    else:
        return Line("kubelet", Verdict.OK, message)
    return Line("kubelet", Verdict.WARN, message)


def api_server(server: ApiServer | Failed) -> Line:
    """Judge the API server's answer to the plainest of questions."""
    if isinstance(server, Failed):
        return Line("api server", Verdict.FAIL, _refused(server))
    return Line("api server", Verdict.OK, f"{server.url} answers, Kubernetes {server.version}")


def rights(answer: Mapping[Right, bool] | Failed | None, mode: str = "") -> Line:
    """
    Judge the rights that the exporter uses, or those that `mode` uses besides; None: the server did not answer.

    Each right of a mode is needed: an operator who sets a mode wants what it does, and would not see that it is not
    done.
    """
    check, users = ("mode rights", f"mode {mode} uses") if mode else ("api rights", "are used")
    if answer is None:
        return _not_asked(check)
    if isinstance(answer, Failed):
        return Line(check, Verdict.WARN, f"cannot be asked for: {_refused(answer)}")
    missing = [right for right, granted in answer.items() if not granted]
    if not missing:
        return Line(check, Verdict.OK, f"all {len(answer)} that {users} are granted")
    named = ", ".join(f"{right} ({right.without})" for right in missing)
    if mode:
        return Line(check, Verdict.FAIL, f"mode {mode} lacks {named}; {_SHIPPED}: deploy/enforcer/rbac.yaml")
    verdict = Verdict.FAIL if any(right.needed for right in missing) else Verdict.WARN
    return Line(check, verdict, f"missing: {named}; {_SHIPPED}: deploy/exporter/rbac.yaml")


def node_name(name: str, node: NodeObject | Failed | None) -> Line:
    """Judge whether the node is one of the cluster's, and this machine; None: the server did not answer."""
    remedy = "set node.name (--node-name, or NODE_NAME from the field spec.nodeName)"
    if node is None:
        return _not_asked("node name")
    if isinstance(node, Failed) and node.status == 404:  # noqa: PLR2004
        return Line("node name", Verdict.FAIL, f"the cluster has no node {name}: {remedy}")
    if isinstance(node, Failed):
        verdict = Verdict.WARN if node.status == 403 else Verdict.FAIL  # noqa: PLR2004
        return Line("node name", verdict, f"{name} cannot be looked up: {_refused(node)}")
    if node.registered and node.booted and node.registered != node.booted:
        message = (
            f"{name} was registered by another machine, or before a reboot (its boot id is not this one's): {remedy}"
        )
        return Line("node name", Verdict.WARN, message)
    return Line("node name", Verdict.OK, f"{name} is a node of the cluster")


def log_links(folder: str, links: int | Failed | None) -> Line:
    """Judge the kubelet's log links, by their number; None: no such folder."""
    if isinstance(links, Failed):
        return Line("log links", Verdict.WARN, links.message)
    if links is None:
        message = (
            f"no {folder}: after a restart while the API server is away nobody can be named; "
            "to change that, mount it read-only below node.host_root"
        )
        return Line("log links", Verdict.WARN, message)
    return Line("log links", Verdict.OK, f"{folder} names {count(links, 'container')}")


def names(source: str, inventory: Inventory | Failed | None) -> Line:
    """Judge a source of names that is not Kubernetes; `source` as in the config, None: there is none."""
    if inventory is None:
        verdict = Verdict.OK if source == "none" else Verdict.WARN
        message = "no source of names (names.source): what containers hold is told of nobody"
        return Line("names", verdict, message)
    if isinstance(inventory, Failed):
        return Line("names", Verdict.FAIL, inventory.message)
    if inventory.faults:
        return Line("names", worst(inventory.faults), "; ".join(map(advised, inventory.faults)))
    return Line("names", Verdict.OK, f"the file names {count(len(inventory.containers), 'container')}")


def _refused(failure: Failed) -> str:
    remedy = _STATUS.get(failure.status)
    return f"{failure.message}; {remedy}" if remedy else failure.message


def _not_asked(check: str) -> Line:
    return Line(check, Verdict.WARN, "not asked, because the API server does not answer")
