"""Which boards there are, from the widest to the narrowest; the policy and the daemons come last."""

from grafana import cluster, efficiency, enforcement, health, namespace, node, pod

BOARDS = (
    cluster.BOARD,
    efficiency.BOARD,
    node.BOARD,
    namespace.BOARD,
    pod.BOARD,
    enforcement.BOARD,
    health.BOARD,
)
