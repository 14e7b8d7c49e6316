"""
Three nodes as one page: two which have everything at once, and one with GPUs of two vendors.

`gpu-node-1` is the golden page. `gpu-node-2` is the same with a container, a pod and a claim over their limits, and one
container that has a GPU and no process. `gpu-node-3` is golden.mixed: both of its GPUs are number 0.
"""

from __future__ import annotations

import re

from golden import mixed
from golden.everything import golden_page

EXCEEDS = (r'(container_memory_limit_bytes\{.*pod="notebook-7c9".*\}) .*', r"\1 1e+10")
"""It holds 20 GiB."""
POD_EXCEEDS = (r"(pod_memory_limit_bytes\{.*\}) .*", r"\1 1e+09")
CLAIM_EXCEEDS = (r"(claim_memory_limit_bytes\{.*\}) .*", r"\1 1e+09")
IDLES = (r'(container_processes\{.*pod="infer-a".*\}) .*', r"\1 0")
ACTED_ON = (r'(last_action_timestamp_seconds\{.*)pod="notebook-1"', r'\1pod="notebook-7c9"')


def page() -> bytes:
    """Each node's samples beside the others', as one page: a family's samples have to stand together."""
    first = golden_page().decode()
    second = first
    for found, instead in (EXCEEDS, POD_EXCEEDS, CLAIM_EXCEEDS, IDLES, ACTED_ON):
        second, count = re.subn(found, instead, second)
        assert count == 1, found
    families, *others = map(_families, (first, second.replace("gpu-node-1", "gpu-node-2"), mixed.page().decode()))
    assert all(other.keys() <= families.keys() for other in others)
    lines = [line for name, (head, own) in families.items() for line in (*head, *own, *_samples(name, others))]
    return "\n".join([*lines, ""]).encode()


def _families(page: str) -> dict[str, tuple[list[str], list[str]]]:
    """Cut a page into families: the lines that describe each, and its samples."""
    found: dict[str, tuple[list[str], list[str]]] = {}
    for line in page.splitlines():
        if line.startswith("# HELP "):
            name = line.split(" ")[2]
            found[name] = ([], [])
        found[name][0 if line.startswith("#") else 1].append(line)
    return found


def _samples(name: str, pages: list[dict[str, tuple[list[str], list[str]]]]) -> list[str]:
    return [line for families in pages if name in families for line in families[name][1]]
