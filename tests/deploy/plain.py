"""
The plain manifests: variants of the chart as kubectl takes them, one folder each. `make manifests` writes them anew.

In: the chart. Out: deploy/manifests. Law: rendered, never written by hand; a test compares.
"""

from __future__ import annotations

import re

from deploy import chart

FOLDER = chart.DEPLOY / "manifests"
VARIANTS = {
    "exporter": "the read-only daemon alone",
    "observe": "measures and judges; warns no pod",
    "warn": "warns pods that exceed their limit by Events",
    "dry-run": "decides and checks as evict does, and acts on no pod",
    "evict": "evicts from namespaces that consent",
    "kill": "evicts, and kills containers where a PodDisruptionBudget blocks that",
    "mig": "observe, with the capability to see what MIG instances hold (CAP_SYS_ADMIN)",
}
HEADER = """\
# gpusteward, {name}: {what}.
# Rendered from deploy/charts/gpusteward by `make manifests`; docs/deploy.md says what it wants and how to apply it.
apiVersion: v1
kind: Namespace
metadata:
  name: gpusteward
  labels: {{pod-security.kubernetes.io/enforce: privileged}}   # hostPID and host paths; nothing else belongs in here
"""
KUSTOMIZATION = """\
apiVersion: kustomize.config.k8s.io/v1beta1
kind: Kustomization
resources: [gpusteward.yaml]
"""
HELMS = re.compile(r"^ *(?:app\.kubernetes\.io/managed-by|helm\.sh/chart): .*\n|^# Source: .*\n", re.MULTILINE)
"""Lines that are true of Helm's releases alone."""


def files() -> dict[str, str]:
    """All files: path below `FOLDER` to content."""
    found = {}
    for name, what in VARIANTS.items():
        rendering = HELMS.sub("", chart.text(chart.variant(name)))
        tidy = "".join(line for line in rendering.splitlines(keepends=True) if line.strip())
        found[f"{name}/gpusteward.yaml"] = HEADER.format(name=name, what=what) + tidy
        found[f"{name}/kustomization.yaml"] = KUSTOMIZATION
    return found


def main() -> None:
    """Write them."""
    for path, content in files().items():
        (FOLDER / path).parent.mkdir(parents=True, exist_ok=True)
        (FOLDER / path).write_text(content)


if __name__ == "__main__":
    main()
