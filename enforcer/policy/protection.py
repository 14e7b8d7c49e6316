"""
Whom nobody touches, and how far the daemon may go with the others.

What comes in: a case, the labels of its namespace, the rules. What goes out: a reason to leave it alone, the mode for
it, the rung that would come next, the grace that it has.

The law: **a pod may make it stricter for itself, and nothing else.** What relaxes (an exemption, a longer grace) counts
with its namespace's word only, which an administrator gives. What is unknown protects.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from enforcer.policy.limit_holders import Case
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, GRACE, LONGEST_GRACE, SHORTEST_GRACE, Rules
from enforcer.policy.vocabulary import DESTRUCTIVE, ON_A_CONTAINER, Mode, Reason, Rung
from exporter.model import ContainerKind, Pod, Scope, Sharing

Labels = Mapping[str, str]

_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_DISRUPT = "karpenter.sh/do-not-disrupt"
_PREFER = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_LONGEST_NUMBER = 9


@dataclass(frozen=True, slots=True)
class Permission:
    """How far the daemon may go with one subject: the mode, the rung that comes next, and why it is held, if it is."""

    mode: Mode
    rung: Rung | None
    held: Reason | None
    detail: str = ""


def protected(case: Case, namespace: Labels | None, rules: Rules) -> Reason | None:
    """Say why the subject must not be acted on, whatever it holds. No annotation and no mode lifts it."""
    pod, protect = case.pod, rules.protect
    if pod is None:
        return Reason.POD_UNKNOWN
    if pod.uid == rules.own_pod:
        return Reason.OWN_POD
    if pod.config_hash is not None:
        return Reason.STATIC_POD
    if pod.namespace == rules.own_namespace or any(fnmatchcase(pod.namespace, one) for one in protect.namespaces):
        return Reason.NAMESPACE
    if pod.priority is None or pod.priority >= protect.priority_at_least or pod.priority_class.startswith("system-"):
        return Reason.PRIORITY
    if any(pod.labels.get(key) == value for key, value in protect.labels.items()):
        return Reason.LABEL
    if pod.terminating:
        return Reason.TERMINATING
    if pod.phase != "Running":
        return Reason.NOT_RUNNING
    if not case.present:
        return Reason.OTHER_GENERATION
    if case.kind in (ContainerKind.INIT, ContainerKind.EPHEMERAL):
        return Reason.CONTAINER_KIND
    if pod.annotations.get(EXEMPT) == "true" and _relaxes(namespace):
        return Reason.EXEMPT
    return None


def permission(case: Case, namespace: Labels | None, rules: Rules, *, fenced: bool, blocked: bool) -> Permission:
    """
    Say how far the daemon may go.

    `fenced`: a fence holds already; `blocked`: an eviction was refused by a PodDisruptionBudget.
    """
    mode, why, detail = _mode(namespace, rules)
    rung = _rung(rules, fenced=fenced, blocked=blocked, container=bool(case.victim))
    if case.limit.report_only:
        return Permission(mode, rung, Reason.REPORT_ONLY, "; ".join(case.limit.report_only))
    if held := _only_reported(case, rules):
        return Permission(mode, rung, held)
    if client := _mps(case, rules, rung):
        return Permission(mode, rung, Reason.MPS, client)
    if why is not None:
        return Permission(mode, rung, why, detail)
    if rung is None:
        return Permission(mode, rung, Reason.NO_RUNG)
    if held := _soft(case.pod, rung, rules):
        return Permission(mode, rung, held)
    key, value = rules.consent
    labels = namespace or {}
    rehearsed = mode is Mode.DRY_RUN and labels.get(CONSENT) == Mode.DRY_RUN
    if rung in DESTRUCTIVE and not rehearsed and labels.get(key) != value:
        return Permission(mode, rung, Reason.NO_CONSENT, f"the namespace needs the label {key}: {value}")
    return Permission(mode, rung, None)


def grace(pod: Pod | None, namespace: Labels | None, rules: Rules) -> float:
    """Return the seconds of grace: the rules', or what the pod wants, as far as it may want it."""
    text = pod.annotations.get(GRACE, "") if pod else ""
    if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
        return rules.grace
    wanted = min(max(float(text), SHORTEST_GRACE), LONGEST_GRACE)
    return wanted if wanted <= rules.grace or _relaxes(namespace) else rules.grace


def _relaxes(namespace: Labels | None) -> bool:
    return namespace is not None and namespace.get(ALLOW_EXEMPTION) == "true"


def _mode(namespace: Labels | None, rules: Rules) -> tuple[Mode, Reason | None, str]:
    """
    Find the effective mode, and why it allows no action, if it does not.

    Who is rehearsed on by the operator's wish is rehearsed on; who is only because something is missing that acting
    takes (journal, admission policy) is held, and the reason says what.
    """
    ceiling = rules.ceiling
    mode, why, detail = ceiling.mode, ceiling.reason, ceiling.detail
    if namespace is None:
        restricted, because = Mode.OBSERVE, Reason.NAMESPACE_UNKNOWN
    else:
        written, because = namespace.get(CONSENT, Mode.ENFORCE), Reason.MODE
        restricted = Mode(written) if written in tuple(Mode) else Mode.OBSERVE
    if restricted.rank < mode.rank or restricted is mode is Mode.DRY_RUN:
        mode, why, detail = restricted, because, ""
    held = mode.rank < Mode.DRY_RUN.rank or why is not Reason.MODE
    return mode, why if held else None, detail


def _rung(rules: Rules, *, fenced: bool, blocked: bool, container: bool) -> Rung | None:
    """Find the next rung. Without one `container` that can be acted on, there is none to fence or to kill."""
    on = blocked and rules.kill_when_blocked and container
    done = {Rung.NOTIFY: True, Rung.FENCE: fenced, Rung.EVICT: on}
    possible = (rung for rung in rules.ladder if container or rung not in ON_A_CONTAINER)
    return next((rung for rung in possible if not done.get(rung)), None)


def _only_reported(case: Case, rules: Rules) -> Reason | None:
    device = case.device
    if case.pods > 1:
        return Reason.CLAIM_SHARED  # whose excess it is nobody declared
    if device is None:
        return None
    # The hardware bounds an instance, and not the pods that share it.
    if case.limit.scope is Scope.INSTANCE or (device.key.gpu_instance is not None and device.pods <= 1):
        return Reason.MIG
    if device.sharing is Sharing.EXCLUSIVE:
        return Reason.EXCLUSIVE
    if device.gpu.vendor not in rules.trusted_vendors:
        return Reason.UNVERIFIED_BACKEND
    return None


def _mps(case: Case, rules: Rules, rung: Rung | None) -> str:
    """
    Say why a rung would end an MPS client, which may take the server and all other clients along; "" if it would not.

    An eviction ends all containers of the pod, a kill one.
    """
    if rung is None or tuple(Rung).index(rung) <= tuple(Rung).index(rules.mps):
        return ""
    if rung in ON_A_CONTAINER:
        return case.clients.get(case.victim) or case.clients.get("", "")
    return next(iter(case.clients.values()), "")


def _soft(pod: Pod | None, rung: Rung, rules: Rules) -> Reason | None:
    """Find what an operator may lift in the rules. These subjects are still told that they are over."""
    if pod is None or rung not in DESTRUCTIVE:
        return None
    written = pod.annotations
    promised = written.get(_SAFE) == "false" or written.get(_DISRUPT) == "true" or _PREFER in written
    if rules.protect.third_party and promised:
        return Reason.THIRD_PARTY
    if rung is Rung.EVICT and rules.protect.daemon_sets and pod.controller_kind == "DaemonSet":
        return Reason.DAEMON_SET
    if rung is Rung.EVICT and rules.protect.bare_pods and not pod.controller_kind:
        return Reason.BARE_POD
    return None
