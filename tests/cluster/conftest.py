"""The fixtures of this folder's tests, and which of them run on which version of Kubernetes."""

import pytest

from cluster.fixtures import api_server, cluster, image, namespace, node_api, server_api, server_namespace
from cluster.stage import stage
from cluster.versions import chosen, later

__all__ = ["api_server", "cluster", "image", "namespace", "node_api", "server_api", "server_namespace", "stage"]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what the chosen version of Kubernetes cannot have: `versions(since="1.34")`, `versions(only="…")`."""
    left_out = [item for item in items if not all(_is_for(mark) for mark in item.iter_markers("versions"))]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]


def _is_for(mark: pytest.Mark) -> bool:
    since, only = mark.kwargs.get("since"), mark.kwargs.get("only")
    return not (since and later(since, chosen())) and only in {None, chosen()}
