"""
Checks of the cluster: kubelet, API server, rights, the node's name, and other sources of names.

What comes in: the answers. What goes out: a line for each.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from exporter.check import remedies
from exporter.check.lines import Failed, Line, Verdict, count, worst
from exporter.kube.allocations import AllocationsView
from exporter.kube.rights import Right
from exporter.model import Inventory

_APPLY = "upgrade the chart, which has the ClusterRole, or apply"
_REVIEWS = "bind the ClusterRole system:basic-user to the group system:authenticated: it allows to ask for one's rights"
_FIRST = "fix the check `api server` first"
_FORBIDDEN, _NOT_FOUND = 403, 404


@dataclass(frozen=True, slots=True)
class ApiServer:
    """An API server that answered with our credentials."""

    url: str
    version: str


@dataclass(frozen=True, slots=True)
class NodeObject:
    """The boot id with which the node was registered ("" when it has none), and this machine's."""

    registered: str
    booted: str


def kubelet(view: AllocationsView | Failed) -> Line:
    """Judge the kubelet's answer."""
    if isinstance(view, Failed):
        return Line("kubelet", Verdict.FAIL, view.message, view.fix or remedies.KUBELET)
    devices = sum(len(holding.device_ids) for holding in view.holdings) + sum(len(c.devices) for c in view.claims)
    message = f"pod-resources {view.api} answers: {count(len(view.pods), 'pod')}, {count(devices, 'device')} allocated"
    if view.api != "v1":
        message += "; this kubelet is older than 1.20, and does not report the devices of sidecars"
        newer = "1.20"
    elif view.allocatable is None:
        message += "; this kubelet is older than 1.23, without allocatable devices: replica counts are lower bounds"
        newer = "1.23"
    else:
        return Line("kubelet", Verdict.OK, message)
    return Line("kubelet", Verdict.WARN, message, f"upgrade the kubelet to {newer} or later")


def api_server(server: ApiServer | Failed) -> Line:
    """Judge the API server's answer to the request for its version."""
    if isinstance(server, Failed):
        return Line("api server", Verdict.FAIL, server.message, _fix(server))
    return Line("api server", Verdict.OK, f"{server.url} answers, Kubernetes {server.version}")


def rights(answer: Mapping[Right, bool] | Failed | None, mode: str = "") -> Line:
    """
    Judge the rights that the exporter uses, or those that `mode` uses besides; None: the server did not answer.

    Each right of a mode is needed. An operator who sets a mode wants its actions, and would not notice that they are
    missing.
    """
    check, users = ("mode rights", f"mode {mode}") if mode else ("api rights", "this config")
    if answer is None:
        return _not_asked(check)
    if isinstance(answer, Failed):
        fix = _REVIEWS if answer.status == _FORBIDDEN else _fix(answer)
        return Line(check, Verdict.WARN, f"unknown: {answer.message}", fix)
    missing = [right for right, granted in answer.items() if not granted]
    if not missing:
        return Line(check, Verdict.OK, f"all {len(answer)} permissions that {users} uses are granted")
    named = ", ".join(f"{right} ({right.without})" for right in missing)
    if mode:
        return Line(check, Verdict.FAIL, f"mode {mode} lacks {named}", f"{_APPLY} deploy/enforcer/rbac.yaml")
    verdict = Verdict.FAIL if any(right.needed for right in missing) else Verdict.WARN
    return Line(check, verdict, f"missing: {named}", f"{_APPLY} deploy/exporter/rbac.yaml")


def node_name(name: str, node: NodeObject | Failed | None) -> Line:
    """Judge whether the cluster's node of this name is this machine; None: the server did not answer."""
    fix = "set node.name (--node-name, or the variable NODE_NAME from the field spec.nodeName)"
    if node is None:
        return _not_asked("node name")
    if isinstance(node, Failed) and node.status == _NOT_FOUND:
        return Line("node name", Verdict.FAIL, f"the cluster has no node {name}", fix)
    if isinstance(node, Failed):
        verdict = Verdict.WARN if node.status == _FORBIDDEN else Verdict.FAIL
        return Line("node name", verdict, f"{name} cannot be read: {node.message}", _fix(node))
    if node.registered and node.booted and node.registered != node.booted:
        message = f"{name} has another boot id than this machine: it is another machine, or registered before a reboot"
        return Line("node name", Verdict.WARN, message, fix)
    return Line("node name", Verdict.OK, f"{name} is a node of the cluster")


def log_links(folder: str, links: int | Failed | None) -> Line:
    """Judge the kubelet's log links, by their number; None: no such folder."""
    if isinstance(links, Failed):
        return Line("log links", Verdict.WARN, links.message, links.fix or remedies.PROC)
    if links is None:
        message = f"no {folder}: after a restart without an API server, containers have no names"
        return Line(
            "log links", Verdict.WARN, message, "mount the folder read-only below node.host_root, as the chart does"
        )
    return Line("log links", Verdict.OK, f"{folder} names {count(links, 'container')}")


def names(source: str, inventory: Inventory | Failed | None) -> Line:
    """Judge a source of names that is not Kubernetes; `source` as in the config, None: there is none."""
    if inventory is None:
        verdict = Verdict.OK if source == "none" else Verdict.WARN
        message = "no source of names: GPU memory is not attributed to pods"
        return Line("names", verdict, message, "" if verdict is Verdict.OK else "set names.source or names.kubeconfig")
    if isinstance(inventory, Failed):
        return Line("names", Verdict.FAIL, inventory.message, inventory.fix or remedies.FAULTS["names_unreadable"])
    if inventory.faults:
        message = "; ".join(fault.message for fault in inventory.faults)
        return Line("names", worst(inventory.faults), message, remedies.of_faults(inventory.faults, remedies.CONFIG))
    return Line("names", Verdict.OK, f"the file names {count(len(inventory.containers), 'container')}")


def _fix(failure: Failed) -> str:
    return failure.fix or remedies.of_api(failure.status)


def _not_asked(check: str) -> Line:
    return Line(check, Verdict.WARN, "unknown, because the API server does not answer", _FIRST)
