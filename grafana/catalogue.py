"""Which boards there are, from the widest to the narrowest; the health of it all comes last."""

from grafana import cluster, enforcement, namespace, node, pod

BOARDS = (cluster.BOARD, node.BOARD, namespace.BOARD, pod.BOARD, enforcement.BOARD)
