"""
How a release was made, as SLSA's provenance (https://slsa.dev/spec/v1.0/provenance).

What comes in: what is released, and from what. What goes out: the predicate that cosign signs.

The rule: pure; nothing is claimed that the build does not know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BUILD_TYPE = "urn:gpusteward:make-release:1"
BY_HAND = "urn:gpusteward:by-hand"


def predicate(
    *, version: str, registry: str, revision: str, url: str, packages: Mapping[str, str], builder: str, run: str
) -> dict[str, Any]:
    """Write the predicate; `url`: of the repository, or empty; `packages`: a list of dependencies -> its SHA-256."""
    commit = {"uri": f"git+{url}" if url else "urn:gpusteward:source", "digest": {"gitCommit": revision}}
    files = [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(packages.items())]
    return {
        "buildDefinition": {
            "buildType": BUILD_TYPE,
            "externalParameters": {"version": version, "registry": registry},
            "internalParameters": {},
            "resolvedDependencies": [commit, *files],
        },
        "runDetails": {"builder": {"id": builder or BY_HAND}, "metadata": {"invocationId": run or revision}},
    }
