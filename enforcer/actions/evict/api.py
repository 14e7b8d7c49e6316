"""
The Eviction API: what is asked, and what its answers mean.

What comes in: an action, the server's answer. What goes out: the object to be sent, and an `Answer`.

The law: the pod is named by its UID, its own grace is not touched, and every answer has one meaning. What is not known
to have failed is ambiguous. Where the server's words are read, they are words that no name of an object can contain.
Sources: `pkg/registry/core/pod/storage/eviction.go` of Kubernetes 1.34; KubeVirt's `pod-eviction-admitter.go`.
"""

from dataclasses import dataclass

from enforcer.actions.interface import Answer, Heard
from enforcer.policy.history import Action

API_VERSION = "policy/v1"
DECISION = "gpusteward.io/decision"
REASON = "gpusteward.io/reason"
"""Annotations of the Eviction: nobody stores it, but admission and the audit log see them."""
LONGEST_DETAIL = 1000

DISRUPTION_BUDGET = "DisruptionBudget"
NAMESPACE_TERMINATING = "NamespaceTerminating"
"""Causes that the server names."""
EVACUATING = "Eviction triggered evacuation"
"""KubeVirt's words, which the descheduler knows, too: the machine moves away, and its pod ends after that."""
SEVERAL_BUDGETS = "more than one PodDisruptionBudget"
PRECONDITIONS = ("in the precondition (", "Precondition failed: ")
WEBHOOK = 'admission webhook "'
ADMISSION_POLICY = "ValidatingAdmissionPolicy '"


@dataclass(frozen=True, slots=True)
class Reply:
    """
    What came of a request.

    Attributes:
        status: of HTTP; 0 when nobody answered.
        sent: it may have reached a server.
        kind: of a success, the kind of the object that came; of a failure, the resource that stands in the way. Empty
            where it was not the API server that answered (a page of a proxy, fairness's text/plain).
        causes: words in which the server goes into detail, `particulars` the same in sentences.
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
    Make the Eviction of the action's pod, and of no other one of this name.

    Without `gracePeriodSeconds`: the pod's own holds, as one of ours could only shorten it. Without `resourceVersion`:
    every heartbeat of the kubelet would make another one.
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
    """Say what a reply to an eviction means. Total: whatever came has a meaning."""
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
        case _:  # 408, 5xx, silence, what no one has heard of: the server may have done it, or be about to
            return Heard.AMBIGUOUS


def _busy(reply: Reply) -> Heard:
    """
    Tell the four meanings of 429 apart.

    Another pod's UID on a pod that is not ready and has a budget is answered as a budget that is still being looked at,
    word for word: it is blocked until the next look, which sees the other UID.
    """
    if EVACUATING in reply.message:
        return Heard.EVACUATING
    if any(words in text for words in PRECONDITIONS for text in (reply.message, *reply.particulars)):
        return Heard.CHANGED
    if DISRUPTION_BUDGET in reply.causes or reply.message.startswith(WEBHOOK):
        return Heard.BLOCKED
    return Heard.FAILED  # fairness, shutdown, etcd: the API's own trouble, and nothing was done


def _refused(reply: Reply) -> Heard:
    """
    Read a 4xx: certainly not done.

    A budget that is gone or changes too fast stands in the way as one that says no does, and so does a webhook: whoever
    wrote it looks after these pods, and not after us.
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
    # A policy's no is about this request; any other 403 is about our rights in the namespace.
    return Heard.FORBIDDEN if reply.status == 403 and ADMISSION_POLICY not in reply.message else Heard.REFUSED  # noqa: PLR2004
