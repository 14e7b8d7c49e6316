"""The fixtures of this folder's tests."""

from cluster.fixtures import api_server, cluster, image, namespace, node_api, server_api, server_namespace
from cluster.stage import stage

__all__ = ["api_server", "cluster", "image", "namespace", "node_api", "server_api", "server_namespace", "stage"]
