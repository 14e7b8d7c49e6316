"""
Evicts a pod.

What comes in: an action. What goes out: one POST to the Eviction API, the meaning of its answer, and looks at the pod.

The rule: the API server decides by its PodDisruptionBudgets whether the pod may be evicted, and the pod's own grace
period decides how fast. The eviction is requested once. A request is sent again only if the server refused it because
the token was old. Whether the pod is being deleted is looked up, and never concluded from an answer.
"""

import asyncio
from typing import Literal

import msgspec

from enforcer.actions.evict.api import Reply, body, heard
from enforcer.actions.interface import Answer
from enforcer.actions.kube_writer import Writer
from enforcer.policy.history import Action
from enforcer.policy.vocabulary import Rung
from exporter.kube.client import segment
from exporter.kube.errors import KubeError, UnsentError, decoded
from exporter.kube.rights import Right
from exporter.objects.pod import PodObject, PodStatus

DEADLINE = 40.0
"""Seconds for this step's `Writer`: on a conflict of the budget or the pod the server itself repeats for 10 s each."""
LOOK = 10.0
"""Seconds for one look."""
AUDIT_ID = "Audit-ID"
"""The header whose id the server writes into its audit log in place of its own. It joins that log with our journal."""
RIGHTS = (
    Right("create", "", "pods/eviction", "nothing is evicted"),
    Right("get", "", "pods", "nothing is evicted, because nothing can be looked at before and after"),
)
"""The rights needed in each namespace that consents; deploy/enforcer/rbac-evict.yaml grants them."""
NOT_FOUND = 404

_POD = msgspec.json.Decoder(PodObject)


class Evict:
    """The step `evict`."""

    rung = Rung.EVICT
    insists = False
    frees = True

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    def preflight(self, _action: Action) -> Answer | None:
        """Return None: only the API server knows what prevents an eviction."""
        return None

    async def act(self, action: Action, decision: str) -> Answer:
        """Ask for the eviction, once."""
        path = f"{_path(action)}/eviction"
        try:
            posted = await self._writer.create(path, body(action, decision), headers={AUDIT_ID: decision})
        except KubeError as error:
            return heard(reply_of(error))
        return heard(Reply(posted.status, kind=_kind(posted.body)))

    async def confirmed(self, action: Action) -> bool | None:
        """Look whether the pod is being deleted, is gone, or was replaced by another; None: the server does not say."""
        pod = await self._pod(action)
        if isinstance(pod, PodObject):
            return pod.metadata.deletion_timestamp is not None
        return pod

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        """Do nothing: a second eviction could only shorten the pod's grace period."""
        return None

    async def ended(self, action: Action) -> bool | None:
        """Look whether the pod is gone, or none of its containers runs; None: the server does not say."""
        pod = await self._pod(action)
        if not isinstance(pod, PodObject):
            return pod
        if pod.status.phase in ("Succeeded", "Failed"):
            return True
        return pod.metadata.deletion_timestamp is not None and _all_terminated(pod)

    async def _pod(self, action: Action) -> PodObject | Literal[True] | None:
        """Read the pod by a quorum read; True: it is gone or was replaced; None: the server does not say."""
        try:
            async with asyncio.timeout(LOOK):
                pod: PodObject = decoded(_POD, await self._writer.get(_path(action)))
        except KubeError as error:
            return True if error.status == NOT_FOUND and error.kind == "pods" else None
        except TimeoutError:
            return None
        if not pod.metadata.uid:
            return None
        return pod if pod.metadata.uid == action.pod_uid else True


def reply_of(error: KubeError) -> Reply:
    """Make a `Reply` of an error of the client."""
    return Reply(
        error.status,
        sent=not isinstance(error, UnsentError),
        message=error.message,
        kind=error.kind,
        causes=tuple(error.causes),
        particulars=tuple(error.particulars),
        retry_after=error.retry_after,
    )


def _path(action: Action) -> str:
    return f"/api/v1/namespaces/{segment(action.namespace)}/pods/{segment(action.pod)}"


class _Made(msgspec.Struct, frozen=True):
    kind: str = ""
    status: object = None


def _kind(answer: bytes) -> str:
    """Return the kind of the object in an answer; empty if it is not Kubernetes' or is a Status other than Success."""
    try:
        made = msgspec.json.decode(answer, type=_Made)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return ""
    return "" if made.kind == "Status" and made.status != "Success" else made.kind


def _all_terminated(pod: PodObject) -> bool:
    """Tell whether every container has ended; a container without a status from the kubelet may be just starting."""
    status: PodStatus = pod.status
    statuses = [
        *(status.init_container_statuses or ()),
        *(status.container_statuses or ()),
        *(status.ephemeral_container_statuses or ()),
    ]
    declared = {container.name for container in pod.spec.containers or ()}
    ended = all(container.state.terminated for container in statuses)
    return bool(declared) and declared <= {container.name for container in statuses} and ended
