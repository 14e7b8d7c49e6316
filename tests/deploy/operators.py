"""
The CustomResourceDefinitions of the Prometheus operator, as files of its Go module, pinned by checksum.

In: a kind. Out: the file with its definition. Law: upstream's own, unchanged.
"""

from __future__ import annotations

import json
import os
import subprocess
from functools import cache
from pathlib import Path

from cluster.build import TOOLS

OPERATOR = "github.com/prometheus-operator/prometheus-operator"
KINDS = ("PodMonitor", "PrometheusRule", "ServiceMonitor")


def definition(kind: str) -> Path:
    """The definition of a kind."""
    return module() / "example" / "prometheus-operator-crd" / f"monitoring.coreos.com_{kind.lower()}s.yaml"


@cache
def module() -> Path:
    """The folder of the module, with the examples that belong to its version."""
    done = subprocess.run(
        ["go", "mod", "download", "-json", OPERATOR], capture_output=True, text=True, check=True,
        cwd=TOOLS / "prometheus-operator", env={**os.environ, "GOFLAGS": "-mod=readonly"},
    )  # fmt: skip
    return Path(json.loads(done.stdout)["Dir"])
