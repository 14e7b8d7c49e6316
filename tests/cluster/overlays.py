"""
What a user writes beside the plain manifests: a kustomize overlay with an image and times.

In: the name of one of deploy/manifests. Out: a folder for `kubectl apply -k`. Law: rights, mounts, modes and the way to
the driver are those that ship.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path

import yaml

from cluster.client import Object
from cluster.image import ROOT
from cluster.installed import RUNTIME_CLASS, TIMES
from cluster.stage import NAMESPACE

MANIFESTS = ROOT / "deploy/manifests"
HERE: Object = {"name": "gpusteward", "imagePullPolicy": "Never"}
"""The image is on the node; there is no registry."""


def overlay(
    folder: Path, image: str, name: str, *, evicts: str | None = None, policy: Mapping[str, object] = {}
) -> Path:
    """Write one for deploy/manifests/`name`; `evicts`: a namespace that consents; `policy`: more of the config."""
    repository, _, tag = image.rpartition(":")
    shipped = {one["kind"]: one for one in yaml.safe_load_all((MANIFESTS / name / "gpusteward.yaml").read_text())}
    daemon = shipped["DaemonSet"]["metadata"]["name"]
    config = yaml.safe_load(shipped["ConfigMap"]["data"]["config.yaml"])
    config["sampling"] = {"interval": "2s"}
    if "policy" in config:
        config["policy"] |= {**TIMES, **policy}
    patches = [
        {**_object("v1", "ConfigMap", daemon), "data": {"config.yaml": json.dumps(config)}},
        {**_object("apps/v1", "DaemonSet", daemon), "spec": {"template": {"spec": {"containers": [HERE]}}}},
    ]
    besides = {"runtime.yaml": RUNTIME_CLASS} | ({"binding.yaml": _binding(evicts)} if evicts else {})
    made = folder / name
    made.mkdir()
    for file, content in besides.items():
        (made / file).write_text(json.dumps(content))
    kustomization = {
        "resources": [os.path.relpath(MANIFESTS / name, made), *besides],
        "images": [{"name": "gpusteward", "newName": repository, "newTag": tag}],
        "patches": [{"patch": json.dumps(patch)} for patch in patches],
    }
    (made / "kustomization.yaml").write_text(json.dumps(kustomization))
    return made


def _object(version: str, kind: str, name: str) -> Object:
    return {"apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": NAMESPACE}}


def _binding(namespace: str) -> Object:
    group = "rbac.authorization.k8s.io"
    return {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "gpusteward-evict", "namespace": namespace},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": "gpusteward-evict"},
        "subjects": [{"kind": "ServiceAccount", "name": "gpusteward", "namespace": NAMESPACE}],
    }
