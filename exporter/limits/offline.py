"""
`explain -f`: a manifest, and perhaps its node, to what was declared; without a daemon, a cluster or a driver.

What comes in: the text of a file with pods (claims and slices may lie beside them), the text of a node's. What goes
out: one resolution per pod, text, or the JSON list. The devices are those that the node's own labels and annotations
tell.
"""

import json

from exporter.limits.answers import Resolution
from exporter.limits.decoding import NOTHING_CHOSEN, Options
from exporter.limits.explaining import as_data, as_text
from exporter.limits.manifest import ManifestError, devices_of, read
from exporter.limits.resolver import resolve
from exporter.limits.rows import Catalogue


def resolutions(
    text: str, node_text: str | None, catalogue: Catalogue, options: Options = NOTHING_CHOSEN
) -> tuple[Resolution, ...]:
    """Resolve every pod of a file. A node may also lie in the same file. Raises ManifestError."""
    found = read(text, "manifest")
    nodes = found.nodes if node_text is None else read(node_text, "node").nodes
    if node_text is not None and not nodes:
        raise ManifestError("node: no Node in it")
    if not found.pods:
        raise ManifestError("manifest: no Pod in it")
    node = nodes[0] if nodes else None
    devices = devices_of(node) if node else ()
    return tuple(resolve(pod, node, devices, catalogue, claims=found.claims, options=options) for pod in found.pods)


def explain(
    text: str, node_text: str | None, catalogue: Catalogue, options: Options = NOTHING_CHOSEN, *, as_json: bool = False
) -> str:
    """Explain every pod of a file, as text or as one JSON list. Raises ManifestError."""
    found = resolutions(text, node_text, catalogue, options)
    if as_json:
        return json.dumps([entry for each in found for entry in as_data(each)], indent=2) + "\n"
    return "\n".join(as_text(each) for each in found)
