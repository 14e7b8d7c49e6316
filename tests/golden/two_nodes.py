"""
Two nodes which have everything at once, as one page: `gpu-node-1` is the golden page.

`gpu-node-2` is the same with a container, a pod and a claim over their limits, and one container that has a GPU and no
process.
"""

from __future__ import annotations

import re

from golden.everything import golden_page

EXCEEDS = (r'(container_memory_limit_bytes\{.*pod="notebook-7c9".*\}) .*', r"\1 1e+10")
"""It holds 20 GiB."""
POD_EXCEEDS = (r"(pod_memory_limit_bytes\{.*\}) .*", r"\1 1e+09")
CLAIM_EXCEEDS = (r"(claim_memory_limit_bytes\{.*\}) .*", r"\1 1e+09")
IDLES = (r'gpusteward_container_processes\{.*pod="infer-a".*\n', "")
ACTED_ON = (r'(last_action_timestamp_seconds\{.*)pod="notebook-1"', r'\1pod="notebook-7c9"')


def page() -> bytes:
    """Each node's samples beside the other's, as one page: a family's samples have to stand together."""
    changed = golden_page().decode()
    for found, instead in (EXCEEDS, POD_EXCEEDS, CLAIM_EXCEEDS, IDLES, ACTED_ON):
        changed, count = re.subn(found, instead, changed)
        assert count == 1, found
    lines: list[str] = []
    second = iter(line for line in changed.splitlines() if not line.startswith("#"))
    for line in golden_page().decode().splitlines():
        lines.append(line)
        if not line.startswith("#") and not re.match(IDLES[0], f"{line}\n"):
            lines.append(next(second).replace("gpu-node-1", "gpu-node-2"))
    assert next(second, None) is None
    return "\n".join([*lines, ""]).encode()
