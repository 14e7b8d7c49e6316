"""
Decides which limit holders are protected, and how far the daemon may go with the others.

What comes in: a case, the labels of its namespace and the rules. What goes out: a reason that protects the holder, or
the mode, the next step of the ladder, and the reason that holds it.

The rule: **a pod may make the policy stricter for itself, and nothing else.** What relaxes it (an exemption, a longer
grace, an annotation for another controller) counts only where the namespace's administrator allows it. What an operator
chose is named before what is missing, because only what is chosen is announced to the pod.
"""

from collections.abc import Container as Group
from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

from enforcer.policy.holder import CaseKey
from enforcer.policy.limit_holders import Case
from enforcer.policy.next_step import Done, Ladder, impossible, next_step
from enforcer.policy.rules import ALLOW_EXEMPTION, CONSENT, EXEMPT, GRACE, LONGEST_GRACE, Rules
from enforcer.policy.vocabulary import DESTRUCTIVE, ON_A_CONTAINER, REASONS_OF, WRITTEN, Kind, Mode, Reason, Rung
from exporter.model import Pod, Scope, Sharing

Labels = Mapping[str, str]

_SAFE = "cluster-autoscaler.kubernetes.io/safe-to-evict"
_DISRUPT = "karpenter.sh/do-not-disrupt"
_PREFER = "descheduler.alpha.kubernetes.io/prefer-no-eviction"
_LONGEST_NUMBER = 9
_ENDED = frozenset({"Succeeded", "Failed"})
_NO_LABELS: Labels = {}
_ORDER = {rung: place for place, rung in enumerate(Rung)}
_MODES = {mode.value: mode for mode in Mode}
_EVICT, _INSTANCE, _EXCLUSIVE = Rung.EVICT, Scope.INSTANCE, Sharing.EXCLUSIVE  # to look up a member takes long
_PASSES = {None, *REASONS_OF[Kind.WAITING], *REASONS_OF[Kind.UNKNOWN]} - {Reason.STEP_MISSING}
"""Reasons after which an action can still follow."""


@dataclass(slots=True)  # as `Case`
class Permission:
    """
    How far the daemon may go with one limit holder.

    Attributes:
        mode: the effective one.
        written: the mode that operator and namespace wrote; None where the namespace's labels cannot be read.
        rung: the next action.
        held: why it is not acted on, of kind chosen where there is such a reason; None: nothing holds it.
        written_hold: the reason that an operator or administrator wrote, also where `held` names another one.

    """

    mode: Mode
    written: Mode | None
    rung: Rung | None
    held: Reason | None
    detail: str = ""
    written_hold: Reason | None = None


@dataclass(slots=True)  # as `Case`
class _Namespace:
    """The facts that all pods of a namespace share."""

    labels: Labels | None
    protected: bool
    mode: Mode
    written: Mode | None
    chosen: Reason | None
    missing: Reason | None
    detail: str
    missing_detail: str
    relaxes: bool


class Protection:
    """Answers for one snapshot and one set of rules; what holds for a namespace is found out once."""

    def __init__(self, rules: Rules, namespaces: Mapping[str, Labels]) -> None:
        self._rules = rules
        self._labelled = tuple(rules.protect.labels.items())
        self._beyond_fence = tuple(rung for rung in rules.ladder if rung is not Rung.FENCE)
        self._labels = namespaces
        self._namespaces: dict[str, _Namespace] = {}

    def shield(self, case: Case) -> Reason | None:
        """Say why the holder must not be acted on, whatever it uses. No mode lifts it."""
        pod = case.pod
        if pod is None:
            return Reason.POD_UNKNOWN
        return self.of_pod(pod) or (None if case.present else Reason.OTHER_GENERATION)

    def spared(self, pod: Pod) -> bool:
        """Tell whether a pod is protected, whatever it uses."""
        return self.of_pod(pod) is not None

    def of_pod(self, pod: Pod) -> Reason | None:
        """Say what protects a pod as a whole."""
        rules = self._rules
        if pod.uid == rules.own_pod:
            return Reason.OWN_POD
        if pod.config_hash is not None:
            return Reason.STATIC_POD
        if self._of(pod.namespace).protected:
            return Reason.NAMESPACE
        protect = rules.protect
        if pod.priority is None or pod.priority >= protect.priority_at_least or pod.priority_class[:7] == "system-":
            return Reason.PRIORITY
        labels = pod.labels
        for key, value in self._labelled if labels else ():
            if labels.get(key) == value:
                return Reason.LABEL
        if pod.phase in _ENDED or not pod.phase:
            return Reason.NOT_RUNNING
        if pod.annotations.get(EXEMPT) == "true" and self.relaxes(pod.namespace):
            return Reason.EXEMPT
        return None

    def permission(
        self, case: Case, done: Done, fenced: Group[CaseKey] = (), *, deleted_for: float | None = None
    ) -> Permission:
        """
        Say how far the daemon may go.

        Args:
            case: the holder.
            done: the steps that are behind it.
            fenced: holders that were fenced in any generation: that step is left out where another one may follow.
            deleted_for: seconds since the pod was first seen terminating.

        """
        if fenced and case.key.any_generation in fenced:
            beyond = self._permission(case, self._beyond_fence, done, deleted_for)
            if beyond.held in _PASSES:
                return beyond
        return self._permission(case, self._rules.ladder, done, deleted_for)

    def _permission(self, case: Case, ladder: Ladder, done: Done, deleted_for: float | None) -> Permission:
        space = self._of(case.namespace)
        rung, lacking = next_step(case, ladder, self._rules, done, deleted_for)
        held, detail = self._chosen(case, space, rung)
        if held is None:
            held, detail = space.missing, space.missing_detail
        if held is None:
            held = impossible(case, rung, deleted_for)
        if held is None and lacking is not None:
            held, detail = Reason.STEP_MISSING, lacking
        written = space.chosen or (held if held in WRITTEN else self._consent(space, rung)[0])
        return Permission(space.mode, space.written, rung, held, detail, written)

    def grace(self, pod: Pod | None) -> float:
        """Return the seconds of grace: the rules', or what the pod asks for, as far as it may."""
        if pod is None:
            return self._rules.grace
        text = pod.annotations.get(GRACE, "")
        if not (text.isascii() and text.isdigit() and len(text) <= _LONGEST_NUMBER):
            return self._rules.grace
        return min(float(text), LONGEST_GRACE if self.relaxes(pod.namespace) else self._rules.grace)

    def relaxes(self, namespace: str) -> bool:
        """Tell whether the namespace's administrator allows its pods to relax the policy."""
        return self._of(namespace).relaxes

    def _chosen(self, case: Case, space: _Namespace, rung: Rung | None) -> tuple[Reason | None, str]:
        """Find what an operator, an administrator or the declaration itself chose."""
        if case.limit.report_only:
            return Reason.REPORT_ONLY, "; ".join(case.limit.report_only)
        if (bounded := _bounded(case, self._rules)) is not None:
            return bounded, ""
        if client := _mps(case, self._rules, rung):
            return Reason.MPS, client
        if space.chosen is not None:
            return space.chosen, space.detail
        if rung is None:
            return Reason.NO_RUNG, ""
        if rung not in DESTRUCTIVE:
            return None, ""
        if (soft := self._soft(case.pod, rung)) is not None:
            return soft, ""
        return self._consent(space, rung)

    def _consent(self, space: _Namespace, rung: Rung | None) -> tuple[Reason | None, str]:
        """Find whether the namespace's administrator has to consent, and does not."""
        labels = space.labels
        if rung not in DESTRUCTIVE or labels is None:
            return None, ""
        key, value = self._rules.consent
        if labels.get(CONSENT) != Mode.DRY_RUN and labels.get(key) != value:
            return Reason.NO_CONSENT, f"the namespace needs the label {key}: {value}"
        return None, ""

    def _soft(self, pod: Pod | None, rung: Rung | None) -> Reason | None:
        """Find what the operator protects by choice."""
        protect = self._rules.protect
        if pod is None:
            return None
        if protect.third_party and self.relaxes(pod.namespace):
            written = pod.annotations
            if written.get(_SAFE) == "false" or written.get(_DISRUPT) == "true" or _PREFER in written:
                return Reason.THIRD_PARTY
        if rung is not _EVICT:
            return None
        if protect.daemon_sets and pod.controller_kind == "DaemonSet":
            return Reason.DAEMON_SET
        if protect.bare_pods and not pod.controller_kind:
            return Reason.BARE_POD
        return None

    def _of(self, name: str) -> _Namespace:
        known = self._namespaces.get(name)
        if known is None:
            known = self._namespaces[name] = _namespace(name, self._labels.get(name), self._rules)
        return known


def _namespace(name: str, labels: Labels | None, rules: Rules) -> _Namespace:
    """
    Find the effective mode of a namespace, and why it allows no action, if it does not.

    A dry run that an operator wrote is carried out. One that only replaces `enforce` because something is missing
    (journal, admission policy) is held, and the reason says what is missing.
    """
    protected = name == rules.own_namespace or any(fnmatchcase(name, each) for each in rules.protect.namespaces)
    written, chosen, detail = rules.mode, Reason.MODE, ""
    for ceiling in rules.ceilings:
        if ceiling.reason.kind is Kind.CHOSEN and ceiling.mode.rank < written.rank:
            written, chosen, detail = ceiling.mode, ceiling.reason, ceiling.detail
    if labels is not None and CONSENT in labels:
        text = labels[CONSENT]
        wanted = _MODES.get(text, Mode.OBSERVE)
        if wanted.rank < written.rank:
            written, chosen, detail = wanted, Reason.MODE, ""
    mode, missing, missing_detail = written, None, ""
    if labels is None:
        mode, missing = min(mode, Mode.OBSERVE, key=lambda each: each.rank), Reason.NAMESPACE_UNKNOWN
    for ceiling in rules.ceilings:
        if ceiling.mode.rank < mode.rank:  # what was chosen is above it already
            mode, missing, missing_detail = ceiling.mode, ceiling.reason, ceiling.detail
    return _Namespace(
        labels,
        protected,
        mode,
        None if labels is None else written,
        chosen if written.rank < Mode.DRY_RUN.rank else None,
        missing,
        detail,
        missing_detail,
        relaxes=(labels or _NO_LABELS).get(ALLOW_EXEMPTION) == "true",
    )


def _bounded(case: Case, rules: Rules) -> Reason | None:
    """Say why the limit is only reported: hardware keeps it, or no other pod shares the device."""
    device = case.device
    if device is None:
        return None
    # The hardware bounds an instance, and not the pods that share it.
    if case.limit.scope is _INSTANCE or (device.key.gpu_instance is not None and device.pods <= 1):
        return Reason.MIG
    if device.sharing is _EXCLUSIVE:
        return Reason.EXCLUSIVE
    if device.gpu.vendor not in rules.trusted_vendors:
        return Reason.UNVERIFIED_BACKEND
    return None


def _mps(case: Case, rules: Rules, rung: Rung | None) -> str:
    """
    Say why a step would end an MPS client, which may take the server and all other clients along; "" if it would not.

    An eviction ends all containers of the pod, a kill ends one.
    """
    if rung is None or _ORDER[rung] <= _ORDER[rules.mps]:
        return ""
    if rung in ON_A_CONTAINER:
        return case.clients.get(case.victim) or case.clients.get("", "")
    return next(iter(case.clients.values()), "")
