"""
What the pod of `helm test` runs: ask each daemon of the release whether it is ready, and for its metrics.

In: environment variables of templates/tests/ask.yaml, and the pod's own token, with which it reads the DaemonSet, its
pods and their Events. Out: a line per daemon, and why one is missing; exit code 1 if one does not answer within the
time. Law: only Python's own library, no write.
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


def api(group: str, what: str, **query: str) -> Any:
    """Ask the API server for objects of the daemon's namespace; raises OSError."""
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    server = f"https://{f'[{host}]' if ':' in host else host}:{port}"
    path = f"/{group}/namespaces/{os.environ['NAMESPACE']}/{what}?{urllib.parse.urlencode(query)}"
    context = ssl.create_default_context(cafile=str(ACCOUNT / "ca.crt"))
    context.verify_flags &= ~ssl.VERIFY_X509_STRICT  # as the daemon's client: clusters from before Kubernetes 1.17
    return json.loads(text(server + path, context, (ACCOUNT / "token").read_text()))


def daemons() -> list[dict[str, Any]]:
    """Each pod of the daemon."""
    pods = api("api/v1", "pods", labelSelector=os.environ["SELECTOR"])["items"]
    return [one for one in pods if "deletionTimestamp" not in one["metadata"]]


def missing(there: int) -> tuple[str, bool]:
    """Say why the DaemonSet has fewer pods than it wants, and whether that is final; nothing if it has all."""
    name, namespace = os.environ["DAEMONSET"], os.environ["NAMESPACE"]
    daemon_set = api("apis/apps/v1", f"daemonsets/{name}")
    status = daemon_set.get("status", {})
    wanted = status.get("desiredNumberScheduled", 0)
    if status.get("observedGeneration") != daemon_set["metadata"]["generation"]:
        return "the cluster has not looked at it yet\nfix: repeat the test", False
    if not wanted:
        selector = json.dumps(daemon_set["spec"]["template"]["spec"].get("nodeSelector", {}))
        return (
            f"no node fits: by node selector {selector} and affinity, or for a taint that the pods do not tolerate\n"
            "fix: compare `kubectl get nodes --show-labels` with the values vendors, affinity, nodeSelector"
        ), True
    if there >= wanted:
        return "", False
    about = f"involvedObject.kind=DaemonSet,involvedObject.name={name},type=Warning"
    warnings = api("api/v1", "events", fieldSelector=about)["items"]
    warnings.sort(key=lambda one: one.get("lastTimestamp") or one.get("eventTime") or "")
    why = warnings[-1]["message"] if warnings else "no Event says why"
    fix = f"kubectl -n {namespace} describe daemonset {name}"
    if "PodSecurity" in why:
        fix = f"kubectl label --overwrite namespace {namespace} pod-security.kubernetes.io/enforce=privileged"
    return f"{there} of {wanted} pods exist: {why}\nfix: {fix}", False


def waiting(pod: dict[str, Any]) -> str:
    """Say why a container of the pod does not run, or why the pod has no node; nothing where that is not known."""
    for one in pod["status"].get("containerStatuses", []):
        if wait := one.get("state", {}).get("waiting"):
            return f", {wait.get('reason')}: {wait.get('message', '')}".rstrip(": ")
    for one in pod["status"].get("conditions", []):
        if one["type"] == "PodScheduled" and one["status"] != "True":
            return f", {one.get('reason')}: {one.get('message', '')}".rstrip(": ")
    return ""


def wrong(pod: dict[str, Any]) -> str:
    """Ask a daemon; what is wrong with it, and nothing if it is ready and serves metrics."""
    address = pod["status"].get("podIP")
    if not address:
        return f"the pod has no address yet, phase {pod['status'].get('phase')}{waiting(pod)}"
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
        return f"{host} does not answer: {error}{waiting(pod)}"
    return ""


def main() -> int:
    """Ask until all daemons answer, or the time is over."""
    end = time.monotonic() + PATIENCE
    while True:
        final = False
        try:
            pods = daemons()
            found = dict(sorted((one["spec"].get("nodeName", "no node"), wrong(one)) for one in pods))
            absent, final = missing(len(pods))
            if absent:
                found[f"DaemonSet {os.environ['DAEMONSET']}"] = absent
        except OSError as error:
            found = {"API server": str(error)}
        if not any(found.values()) or final or time.monotonic() > end:
            break
        time.sleep(1)
    for node, what in found.items():
        print(
            f"{node}: {what or 'ready' + ('' if os.environ['METRICS'] else '; its metrics want a client certificate')}"
        )
    return int(any(found.values()))


if __name__ == "__main__":
    sys.exit(main())
