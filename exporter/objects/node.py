"""
A Node, and those of its facts that limits are checked against.

What comes in: a node's JSON from the API server, or the same data from a file. What goes out: the node's resources, and
the labels and annotations that sharing systems wrote on it.
"""

from exporter.model import NodeFacts
from exporter.objects.metadata import Metadata, Part, Quantities, texts


class NodeStatus(Part, frozen=True):
    """The resources that a node advertises."""

    capacity: Quantities | None = None
    allocatable: Quantities | None = None


class NodeObject(Part, frozen=True):
    """A Node, without its spec."""

    metadata: Metadata = Metadata()
    status: NodeStatus = NodeStatus()


def node_facts(node: NodeObject) -> NodeFacts:
    """Convert a node's resources, labels and annotations."""
    metadata, status = node.metadata, node.status
    return NodeFacts(
        texts(status.capacity), texts(status.allocatable), metadata.labels or {}, metadata.annotations or {}
    )
