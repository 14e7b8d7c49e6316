"""
The checks of `gpusteward check` for the acting half.

What comes in: a config, the daemon's own pod. What goes out: the rights that its mode needs, and lines about fences,
kills, the admission policies and the namespaces that consent.

The rule: no check sets or writes anything. The admission policies are asked by dry runs.
"""

from collections.abc import Collection

import msgspec

from enforcer.actions.evict import admission_probe
from enforcer.actions.evict.admission_probe import OwnPod
from enforcer.actions.fence.cgroup_paths import Leaves, mount_point
from enforcer.actions.fence.nvml import NvmlLimits
from enforcer.actions.kill.pidfds import unavailable
from enforcer.actions.kube_writer import Writer
from enforcer.actions.notify.actuator import RIGHTS
from enforcer.policy.vocabulary import DESTRUCTIVE, Mode, Rung
from enforcer.runtime.admission_watch import NOWHERE
from enforcer.runtime.fence_upkeep import impossible
from enforcer.runtime.policy_config import plays, rules_of
from enforcer.runtime.rights_watch import missing
from exporter.base.clock import SystemClock
from exporter.base.problem import Problem
from exporter.check import remedies
from exporter.check.lines import Line, Verdict, count
from exporter.config import Config, source_of_names
from exporter.host.pod_cgroups import pod_cgroups
from exporter.host.procfs import proc_root
from exporter.kube.client import METADATA_ONLY, Client, segment
from exporter.kube.credentials import credentials
from exporter.kube.errors import KubeError, decoded
from exporter.kube.rights import Right
from exporter.objects.metadata import Described

METADATA_LIST = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
_LADDER = "remove kill from policy.ladder on this node, or add evict"
_NO_FENCE = "upgrade the driver where it is too old, or remove fence from policy.ladder on this node"
_NO_KILL = "give the daemon's pod what the step kill needs (docs/actions.md), or remove kill from policy.ladder"
_NO_POLICY = "upgrade the chart with admission.create, or apply deploy/enforcer/admission.yaml and rbac-evict.yaml"
_NO_OWN_POD = "set both in the pod by the downward API, as the chart does, or set policy.admission: ignore"
MOST_NAMED = 10
"""Namespaces of which a line is printed; of more the number."""
FORBIDDEN = 403


class _Items(msgspec.Struct, frozen=True):
    items: tuple[Described, ...] = ()


_NAMESPACES = msgspec.json.Decoder(_Items)
_NAMESPACE = msgspec.json.Decoder(Described)


def mode_rights(config: Config) -> tuple[Right, ...]:
    """Name the rights that the config's mode asks for besides the exporter's: what `gpusteward run` does with them."""
    return RIGHTS if Mode(config.policy.mode).rank >= Mode.WARN.rank else ()


async def beyond(config: Config, *, in_a_pod: bool, own: OwnPod) -> tuple[Line, ...]:
    """Judge what acting needs of the node, of the cluster's admission, and of the namespaces that consent."""
    lines = (*await fence(config), *kill(config))
    names = source_of_names(config.names, in_a_pod=in_a_pod)
    if Mode(config.policy.mode) is not Mode.ENFORCE or plays(config) or names != "kubernetes":
        return lines
    return (*lines, *await admission(config, own), *await consent(config))


async def fence(config: Config) -> tuple[Line, ...]:
    """Judge whether this node can fence, where the ladder has that."""
    if Rung.FENCE not in config.policy.ladder or plays(config):
        return ()
    limits = NvmlLimits()
    try:
        pods = pod_cgroups(config.node.pods_cgroup, config.node.host_root)
        why = await impossible(limits, Leaves(proc_root(config.node.host_root), mount_point(), pods))
    finally:
        await limits.close()
    if why is None:
        return (Line("fence", Verdict.OK, "the driver can limit memory per cgroup (experimental)"),)
    following = [step for step in config.policy.ladder if step in DESTRUCTIVE]
    if why.lasting and following:
        then = f"the ladder goes on to {following[0]}"
        return (Line("fence", Verdict.WARN, f"this node cannot fence: {why.detail}; {then}", _NO_FENCE),)
    then = "pods over their limit are held" + ("" if why.lasting else " until that is known")
    fix = "remove fence from policy.ladder on this node, or add evict or kill"
    return (Line("fence", _grave(config), f"this node cannot fence: {why.detail}; {then}", fix),)


def kill(config: Config) -> tuple[Line, ...]:
    """Judge whether this node can kill, where the ladder has that."""
    if Rung.KILL not in config.policy.ladder or plays(config):
        return ()
    try:
        why = unavailable(proc_root(config.node.host_root), trusted=config.node.trust_pid_namespace)
    except OSError as error:
        why = Problem(str(error), fix="")
    if why is None:
        return (Line("kill", Verdict.OK, "containers can be signalled through a pidfd"),)
    message = f"this node cannot kill: {why.reason}"
    if Rung.EVICT in config.policy.ladder:
        message = f"{message}; a blocked eviction is tried again instead"
        return (Line("kill", Verdict.WARN, message, why.fix or _NO_KILL),)
    return (Line("kill", _grave(config), f"{message}; pods over their limit are held", why.fix or _LADDER),)


def _grave(config: Config) -> Verdict:
    return Verdict.FAIL if Mode(config.policy.mode) is Mode.ENFORCE else Verdict.WARN


async def admission(config: Config, own: OwnPod) -> tuple[Line, ...]:
    """Judge whether the admission policies are in force, where evictions wait for them."""
    if Rung.EVICT not in config.policy.ladder or config.policy.admission != "required":
        return ()
    if not own.known:
        return (Line("admission", Verdict.FAIL, NOWHERE, _NO_OWN_POD),)
    writer = Writer(credentials(config.names.kubeconfig), clock=SystemClock())
    try:
        found = await admission_probe.missing(writer, own)
    finally:
        await writer.close()
    if found is None:
        named = f"{admission_probe.POLICY} and {admission_probe.OWN_NODE}"
        return (Line("admission", Verdict.OK, f"evictions are bounded by {named}"),)
    message = f"{found.problem.reason}; no pod is evicted"
    return (Line("admission", Verdict.FAIL, message, found.problem.fix or _NO_POLICY),)


async def consent(config: Config) -> tuple[Line, ...]:
    """Judge whether the daemon may act in each namespace that consents."""
    client = Client(credentials(config.names.kubeconfig), clock=SystemClock())
    try:
        namespaces, where = await _consenting(client, config)
        lacking = {name: why for name in namespaces if (why := await missing(client.may, name, rules_of(config)))}
    except KubeError as error:
        fix = remedies.of_api(error.status, error.reason)
        return (Line("consent", Verdict.WARN, f"unknown: {error}", fix),)
    finally:
        await client.close()
    if not namespaces:
        label = config.policy.namespaces.label
        message = f"no namespace{where} has the label {label} now: no pod is acted on"
        fix = f"if pods of a namespace are to be acted on: kubectl label namespace NAME {label}"
        return (Line("consent", Verdict.WARN, message, fix),)
    if not lacking:
        return (Line("consent", Verdict.OK, f"evictions are allowed in {count(len(namespaces), 'namespace')}{where}"),)
    lines = [Line("consent", Verdict.FAIL, why.reason, why.fix) for why in list(lacking.values())[:MOST_NAMED]]
    if len(lacking) > MOST_NAMED:
        message = f"rights are missing in {len(lacking) - MOST_NAMED} more namespaces"
        lines.append(Line("consent", Verdict.FAIL, message, "do the same there, and check again"))
    return tuple(lines)


async def _consenting(client: Client, config: Config) -> tuple[Collection[str], str]:
    """
    Name the namespaces that consent: of the cluster, or of this node's pods where the daemon may not list namespaces.

    The second value says which, for people. Raises KubeError.
    """
    label = config.policy.namespaces.label
    key, _, value = label.partition("=")
    try:
        answer = await client.get("/api/v1/namespaces", {"labelSelector": label}, accept=METADATA_LIST)
    except KubeError as error:
        if error.status != FORBIDDEN:
            raise
    else:
        listed: _Items = decoded(_NAMESPACES, answer)
        return sorted(item.metadata.name for item in listed.items), ""
    query = {"fieldSelector": f"spec.nodeName={config.node.name}"}
    pods: _Items = decoded(_NAMESPACES, await client.get("/api/v1/pods", query, accept=METADATA_LIST))
    names = sorted({item.metadata.namespace for item in pods.items})
    consenting = []
    for name in names:
        described: Described = decoded(
            _NAMESPACE, await client.get(f"/api/v1/namespaces/{segment(name)}", accept=METADATA_ONLY)
        )
        if (described.metadata.labels or {}).get(key) == value:
            consenting.append(name)
    return consenting, " with a pod on this node"
