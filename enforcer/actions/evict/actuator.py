"""
Evicts a pod.

What comes in: an action. What goes out: one POST to the Eviction API, and what was heard; looks at the pod.

The rule: the API server decides, with its PodDisruptionBudgets, whether the pod may go, and the pod's own grace says
how fast. The eviction is requested once: only a request that the server refused because the token was old is sent
again. Whether the pod is being deleted is looked up, and not concluded from an answer.
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
"""Seconds for the `Writer` that this is given: the server itself repeats for 10 s each where budget or pod conflict."""
LOOK = 10.0
"""Seconds for one look."""
AUDIT_ID = "Audit-ID"
"""The server writes it into its audit log instead of an id of its own, which joins its log with our journal."""
RIGHTS = (
    Right("create", "", "pods/eviction", "nothing is evicted"),
    Right("get", "", "pods", "nothing is evicted, because nothing can be looked at before and after"),
)
"""What this asks of the API server, in each namespace that consents; deploy/enforcer/rbac-evict.yaml grants it."""
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
        """Say nothing: only the API server knows."""
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
        """Look whether the pod is being deleted, is gone, or is another one by now; None: the server does not say."""
        pod = await self._pod(action)
        if isinstance(pod, PodObject):
            return pod.metadata.deletion_timestamp is not None
        return pod

    async def insist(self, _action: Action, _decision: str) -> Answer | None:
        """Nothing follows: a second eviction could only shorten the grace."""
        return None

    async def ended(self, action: Action) -> bool | None:
        """Look whether the pod is gone or none of its containers runs; None: the server does not say."""
        pod = await self._pod(action)
        if not isinstance(pod, PodObject):
            return pod
        if pod.status.phase in ("Succeeded", "Failed"):
            return True
        return pod.metadata.deletion_timestamp is not None and _all_terminated(pod)

    async def _pod(self, action: Action) -> PodObject | Literal[True] | None:
        """Read the pod by a quorum read; True: it is gone, or is another one by now; None: the server does not say."""
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
    """Take from an error what the reading of answers wants."""
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
    """Read what came; empty for what is nothing of Kubernetes, and for a Status that is no success."""
    try:
        made = msgspec.json.decode(answer, type=_Made)
    except (msgspec.DecodeError, msgspec.ValidationError, UnicodeDecodeError):
        return ""
    return "" if made.kind == "Status" and made.status != "Success" else made.kind


def _all_terminated(pod: PodObject) -> bool:
    """Tell whether every container has ended; one of which the kubelet has not told anything may be just starting."""
    status: PodStatus = pod.status
    statuses = [
        *(status.init_container_statuses or ()),
        *(status.container_statuses or ()),
        *(status.ephemeral_container_statuses or ()),
    ]
    declared = {container.name for container in pod.spec.containers or ()}
    ended = all(container.state.terminated for container in statuses)
    return bool(declared) and declared <= {container.name for container in statuses} and ended
