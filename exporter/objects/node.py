"""
What a Node looks like, and which of its facts limits are checked against.

What comes in: a node's JSON from the API server, or the same data from a file. What goes out: what the node advertises,
and what sharing systems wrote on it.
"""

from exporter.model import NodeFacts
from exporter.objects.metadata import Metadata, Part, Quantities, texts


class NodeStatus(Part, frozen=True):
    """What a node advertises."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class NodeObject(Part, frozen=True):
    """A node."""

    metadata: Metadata = Metadata()
    status: NodeStatus = NodeStatus()


def node_facts(node: NodeObject) -> NodeFacts:
    """Take out of a node what it advertises, and what sharing systems wrote on it."""
    metadata, status = node.metadata, node.status
    return NodeFacts(
        texts(status.capacity), texts(status.allocatable), metadata.labels or {}, metadata.annotations or {}
    )
