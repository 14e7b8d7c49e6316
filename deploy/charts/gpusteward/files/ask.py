"""
What the pod of `helm test` runs: ask each daemon of the release whether it is ready, and for its metrics.

In: environment variables of templates/tests/ask.yaml, and the pod's own token, with which it lists the daemon's pods.
Out: a line per daemon; exit code 1 if one does not answer within the time. Law: only Python's own library, no write.
"""

from __future__ import annotations

import json
import os
import ssl
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path
from typing import Any

ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
PATIENCE = 90.0
"""Seconds. A daemon that has just started needs its first rounds, and a network policy takes a while to hold."""
UNAUTHORIZED = 401
NOT_PROVEN = ssl._create_unverified_context()  # noqa: S323, SLF001
"""A daemon's certificate does not name the pod's address. Nothing secret is sent."""


def text(url: str, context: ssl.SSLContext | None = None, token: str = "") -> str:
    """GET; raises OSError."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})  # noqa: S310
    with urllib.request.urlopen(request, timeout=5, context=context) as answer:  # noqa: S310
        return str(answer.read().decode())


def daemons() -> list[dict[str, Any]]:
    """Each pod of the daemon, from the API server."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    query = urllib.parse.urlencode({"labelSelector": os.environ["SELECTOR"]})
    path = f"/api/v1/namespaces/{os.environ['NAMESPACE']}/pods?{query}"
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as the daemon's client: clusters from before Kubernetes 1.17
    pods = json.loads(text(server + path, context, (ACCOUNT / "token").read_text()))["items"]
    return [one for one in pods if "deletionTimestamp" not in one["metadata"]]


def wrong(pod: dict[str, Any]) -> str:
    """Ask a daemon; what is wrong with it, and nothing if it is ready and serves metrics."""
    address = pod["status"].get("podIP")
    if not address:
        return f"the pod has no address yet, phase {pod['status'].get('phase')}"
    host = f"[{address}]" if ":" in address else address
    try:
        text(os.environ["READY"].format(host=host), NOT_PROVEN)
        metrics = os.environ["METRICS"]
        if metrics and "gpusteward_build_info" not in text(metrics.format(host=host), NOT_PROVEN):
            return "/metrics has no gpusteward_build_info"
    except urllib.error.HTTPError as error:
        if error.code == UNAUTHORIZED and os.environ["PASSWORD"]:
            return ""  # it asks for a password, which this pod does not have
        return f"{error.url} answers {error.code}: {error.read().decode(errors='replace').strip()}"
    except OSError as error:
        return f"{host} does not answer: {error}"
    return ""


def main() -> int:
    """Ask until all daemons answer, or the time is over."""
    end = time.monotonic() + PATIENCE
    while True:
        try:
            found = {one["spec"].get("nodeName", "no node"): wrong(one) for one in daemons()}
        except OSError as error:
            found = {"API server": str(error)}
        if (found and not any(found.values())) or time.monotonic() > end:
            break
        time.sleep(1)
    for node, what in sorted(found.items()):
        print(
            f"{node}: {what or 'ready' + ('' if os.environ['METRICS'] else '; its metrics want a client certificate')}"
        )
    if not found:
        print("no daemon runs: no node has a label that says that it has GPUs\nfix: label the nodes, or set `affinity`")
    return int(not found or any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
