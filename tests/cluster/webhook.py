"""
A webhook that answers evictions.

In: its namespaces and answers. Out: a while in which the API server asks it. Law: it is not asked about evictions in
other namespaces.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from aiohttp import web

from cluster.bed import Bed
from cluster.client import Api, ApiError, until
from sources.kube_api import serving

HOOKS = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations"


@asynccontextmanager
async def webhook(bed: Bed, api: Api, **answers: tuple[str, int, str]) -> AsyncIterator[None]:
    """A webhook that answers evictions in some namespaces: by its name, (namespace, status, message)."""
    authority = bed.control_plane.authority
    pair = authority.issue("hook", "hook", hosts=["127.0.0.1"])
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(pair.certificate, pair.key)

    async def answer(request: web.Request) -> web.Response:
        asked = (await request.json())["request"]
        _, code, message = answers[request.path.strip("/")]
        said = {"uid": asked["uid"], "allowed": False, "status": {"code": code, "message": message}}
        return web.json_response({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": said})

    async with serving(answer, context=tls) as server:
        rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
        bundle = base64.b64encode(authority.certificate.read_bytes()).decode()
        hooks = [
            {
                "name": f"{name}.hooks.test",
                "clientConfig": {"url": f"{server.url}/{name}", "caBundle": bundle},
                "rules": [rule],
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for name, (namespace, _, _) in answers.items()
        ]
        await api.create(HOOKS, {"metadata": {"name": "hooks.test"}, "webhooks": hooks})
        try:
            for namespace, _, message in answers.values():
                await until(partial(_hooked, api, namespace, message), "the webhook to be asked")
            yield
        finally:
            await api.delete(f"{HOOKS}/hooks.test")


async def _hooked(api: Api, namespace: str, message: str) -> bool:
    """Whether an eviction of no existing pod meets the webhook; admission comes before the pod is looked for."""
    try:
        await api.evict(namespace, "nobody", dryRun=["All"])
    except ApiError as error:
        return message in error.message
    return False
