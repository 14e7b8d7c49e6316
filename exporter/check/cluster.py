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


def kubelet(found: AllocationsView | Failed) -> Line:
    """Judge the kubelet's answer."""
    if isinstance(found, Failed):
        return Line("kubelet", Verdict.FAIL, found.message)
    devices = sum(len(holding.device_ids) for holding in found.holdings) + sum(len(c.devices) for c in found.claims)
    message = (
        f"pod-resources {found.api} answers: {count(len(found.pods), 'pod')}, {count(devices, 'device')} handed out"
    )
    if found.api != "v1":
        message += "; this kubelet is older than 1.20: what its sidecars hold is not told"
    elif found.allocatable is None:
        message += "; it cannot tell what it offers (before 1.23): numbers of replicas are lower bounds"
    else:
        return Line("kubelet", Verdict.OK, message)
    return Line("kubelet", Verdict.WARN, message)


def api_server(found: ApiServer | Failed) -> Line:
    """Judge the API server's answer to the plainest of questions."""
    if isinstance(found, Failed):
        return Line("api server", Verdict.FAIL, _refused(found))
    return Line("api server", Verdict.OK, f"{found.url} answers, Kubernetes {found.version}")


def rights(found: Mapping[Right, bool] | Failed | None, mode: str = "") -> Line:
    """
    Judge the rights that the exporter uses, or those that `mode` uses besides; None: the server did not answer.

    Each right of a mode is needed: an operator who sets a mode wants what it does, and would not see that it is not
    done.
    """
    check, users = ("mode rights", f"mode {mode} uses") if mode else ("api rights", "are used")
    if found is None:
        return _not_asked(check)
    if isinstance(found, Failed):
        return Line(check, Verdict.WARN, f"cannot be asked for: {_refused(found)}")
    missing = [right for right, granted in found.items() if not granted]
    if not missing:
        return Line(check, Verdict.OK, f"all {len(found)} that {users} are granted")
    named = ", ".join(f"{right} ({right.without})" for right in missing)
    if mode:
        return Line(check, Verdict.FAIL, f"mode {mode} lacks {named}; {_SHIPPED}: deploy/enforcer/rbac.yaml")
    verdict = Verdict.FAIL if any(right.needed for right in missing) else Verdict.WARN
    return Line(check, verdict, f"missing: {named}; {_SHIPPED}: deploy/exporter/rbac.yaml")


def node_name(name: str, found: NodeObject | Failed | None) -> Line:
    """Judge whether the node is one of the cluster's, and this machine; None: the server did not answer."""
    remedy = "set node.name (--node-name, or NODE_NAME from the field spec.nodeName)"
    if found is None:
        return _not_asked("node name")
    if isinstance(found, Failed) and found.status == 404:  # noqa: PLR2004
        return Line("node name", Verdict.FAIL, f"the cluster has no node {name}: {remedy}")
    if isinstance(found, Failed):
        verdict = Verdict.WARN if found.status == 403 else Verdict.FAIL  # noqa: PLR2004
        return Line("node name", verdict, f"{name} cannot be looked up: {_refused(found)}")
    if found.registered and found.booted and found.registered != found.booted:
        message = (
            f"{name} was registered by another machine, or before a reboot (its boot id is not this one's): {remedy}"
        )
        return Line("node name", Verdict.WARN, message)
    return Line("node name", Verdict.OK, f"{name} is a node of the cluster")


def log_links(folder: str, found: int | Failed | None) -> Line:
    """Judge the kubelet's log links, by their number; None: no such folder."""
    if isinstance(found, Failed):
        return Line("log links", Verdict.WARN, found.message)
    if found is None:
        message = (
            f"no {folder}: after a restart while the API server is away nobody can be named; "
            "to change that, mount it read-only below node.host_root"
        )
        return Line("log links", Verdict.WARN, message)
    return Line("log links", Verdict.OK, f"{folder} names {count(found, 'container')}")


def names(source: str, found: Inventory | Failed | None) -> Line:
    """Judge a source of names that is not Kubernetes; `source` as in the config, None: there is none."""
    if found is None:
        verdict = Verdict.OK if source == "none" else Verdict.WARN
        message = "no source of names (names.source): what containers hold is told of nobody"
        return Line("names", verdict, message)
    if isinstance(found, Failed):
        return Line("names", Verdict.FAIL, found.message)
    if found.faults:
        return Line("names", worst(found.faults), "; ".join(map(advised, found.faults)))
    return Line("names", Verdict.OK, f"the file names {count(len(found.containers), 'container')}")


def _refused(found: Failed) -> str:
    remedy = _STATUS.get(found.status)
    return f"{found.message}; {remedy}" if remedy else found.message


def _not_asked(check: str) -> Line:
    return Line(check, Verdict.WARN, "not asked, because the API server does not answer")
