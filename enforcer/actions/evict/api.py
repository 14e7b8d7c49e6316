"""
The Eviction API: the request, and what its answers mean.

What comes in: an action, the server's answer. What goes out: the object to send, and an `Answer`.

The rule: the request names the pod by its UID and leaves the pod's own grace period. Every answer has one meaning, and
one that does not prove failure is ambiguous. Where a message is read, the text searched for cannot be part of an
object's name.
Sources: `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.34; KubeVirt's `pod-eviction-admitter.go`.
"""

from dataclasses import dataclass

from enforcer.actions.interface import Answer, Heard
from enforcer.policy.history import Action

API_VERSION = "policy/v1"
DECISION = "gpusteward.io/decision"
REASON = "gpusteward.io/reason"
"""Annotations of the Eviction: the server does not store them, but admission and the audit log see them."""
LONGEST_DETAIL = 1000

DISRUPTION_BUDGET = "DisruptionBudget"
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Causes that the server names."""
EVACUATING = "Eviction triggered evacuation"
"""KubeVirt's message, which the descheduler knows, too: the machine moves away, and its pod ends after that."""
SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
PRECONDITIONS = ("in the precondition (", "Precondition failed: ")
WEBHOOK = 'admission webhook "'
ADMISSION_POLICY = "ValidatingAdmissionPolicy '"


@dataclass(frozen=True, slots=True)
class Reply:
    """
    The outcome of a request.

    Attributes:
        status: of HTTP; 0 if no answer came.
        sent: the request may have reached a server.
        kind: of a success, the kind of the object in the answer; of a failure, the resource that prevents it. Empty if
            the answer is not the API server's (a page of a proxy, fairness's text/plain).
        causes: the reasons in the answer's details; `particulars` has their sentences.
        retry_after: seconds.

    """

    status: int
    sent: bool = True
    message: str = ""
    kind: str = ""
    causes: tuple[str, ...] = ()
    particulars: tuple[str, ...] = ()
    retry_after: float | None = None


def body(action: Action, decision: str) -> dict[str, object]:
    """
    Make the Eviction of the action's pod, and of no other pod of this name.

    It has no `gracePeriodSeconds`, because ours could only shorten the pod's own. It has no `resourceVersion`, because
    every heartbeat of the kubelet changes it.
    """
    whom = f"container {action.container}" if action.container else "the pod"
    uuid = action.device.uuid
    instance = "" if action.device.gpu_instance is None else f" GPU instance {action.device.gpu_instance}"
    limit = f"limit {action.limit.memory} ({action.limit.declared})"
    reason = f"{whom} uses {action.used} bytes of {uuid}{instance}, {limit}"
    return {
        "apiVersion": API_VERSION,
        "kind": "Eviction",
        "metadata": {
            "name": action.pod,
            "namespace": action.namespace,
            "annotations": {DECISION: decision, REASON: reason},
        },
        "deleteOptions": {"preconditions": {"uid": action.pod_uid}},
    }


def heard(reply: Reply) -> Answer:
    """Return what a reply to an eviction means. Total: every reply has a meaning."""
    more = (text for text in reply.particulars if text not in reply.message)  # a policy says all twice
    detail = ". ".join(text.removesuffix(".") for text in (reply.message, *more) if text)
    return Answer(_meaning(reply), detail[:LONGEST_DETAIL], reply.status or None, reply.retry_after)


def _meaning(reply: Reply) -> Heard:
    if not reply.sent:
        return Heard.FAILED
    match reply.status:
        case 200 | 201 | 202:
            return Heard.ACCEPTED if reply.kind in ("Status", "Eviction") else Heard.AMBIGUOUS
        case 429:
            return _busy(reply)
        case 400 | 401 | 403 | 404 | 405 | 406 | 409 | 410 | 411 | 413 | 414 | 415 | 422 | 431:
            return _refused(reply)
        case 500 if SEVERAL_BUDGETS in reply.message:
            return Heard.BLOCKED
        case _:  # 408, 5xx, no answer, any other status: the server may have done it, or may still do it
            return Heard.AMBIGUOUS


def _busy(reply: Reply) -> Heard:
    """
    Tell the four meanings of 429 apart.

    A pod that is not ready, has a budget and has another UID gets the same answer as a budget that is not yet observed.
    It counts as blocked until the next look, which sees the other UID.
    """
    if EVACUATING in reply.message:
        return Heard.EVACUATING
    if any(words in text for words in PRECONDITIONS for text in (reply.message, *reply.particulars)):
        return Heard.CHANGED
    if DISRUPTION_BUDGET in reply.causes or reply.message.startswith(WEBHOOK):
        return Heard.BLOCKED
    return Heard.FAILED  # fairness, shutdown, etcd: the API server's own trouble, and nothing was done


def _refused(reply: Reply) -> Heard:
    """
    Read a 4xx: the eviction was certainly not done.

    A budget that is gone or changes too fast blocks the eviction, as a budget without room does. So does a webhook: its
    author protects these pods.
    """
    if NAMESPACE_TERMINATING in reply.causes:
        return Heard.GONE
    if reply.status in (403, 404, 409) and reply.kind.startswith("poddisruptionbudget"):
        return Heard.BLOCKED
    if reply.message.startswith(WEBHOOK):
        return Heard.BLOCKED
    if reply.status == 404 and reply.kind in ("pods", "namespaces"):  # noqa: PLR2004
        return Heard.GONE
    if reply.status == 409 and reply.kind:  # noqa: PLR2004
        return Heard.CHANGED
    if reply.status == 401:  # noqa: PLR2004
        return Heard.UNAUTHORIZED
    # A policy's refusal is about this request; any other 403 is about our rights in the namespace.
    return Heard.FORBIDDEN if reply.status == 403 and ADMISSION_POLICY not in reply.message else Heard.REFUSED  # noqa: PLR2004
