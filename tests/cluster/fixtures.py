"""Fixtures for tests on a real cluster: `pytest_plugins = ["cluster.fixtures"]`.

    cluster      (session) a Bed with a node; `node_api` and `namespace` (function): an admin client, a fresh namespace
    image        (session) the name of the daemon's image, which the node of `cluster` has then
    api_server   (session) a Bed without; `server_api` and `server_namespace`

Law: what this machine lacks is said loudly; then the tests are skipped on a developer's machine, and fail with CI=true.
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from cluster import image as daemon_image
from cluster import requirements
from cluster.bed import Bed
from cluster.client import Api, until
from containers.cgroupfs import new_token


def require(problems: list[str]) -> None:
    """Go on when there are none; else skip, or fail where CI=true."""
    if not problems:
        return
    text = "no cluster for tests on this machine: " + "; ".join(problems)
    if os.environ.get("CI") == "true":
        pytest.fail(text, pytrace=False)
    pytest.skip(text)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Bed]:
    """A cluster with one node, fake GPUs on it; the same for all tests of the run."""
    require(requirements.missing(node=True))
    with Bed() as bed:
        yield bed


@pytest.fixture(scope="session")
def image(cluster: Bed) -> str:
    """Name of the daemon's image, made of this checkout; the node has it."""
    require(requirements.missing_for_image())
    cluster.node.import_image(daemon_image.archive(), daemon_image.NAME)
    return daemon_image.NAME


@pytest.fixture(scope="session")
def api_server() -> Iterator[Bed]:
    """An API server without any node; the same for all tests of the run."""
    require(requirements.missing(node=False))
    with Bed(node=False) as bed:
        yield bed


@pytest.fixture
async def node_api(cluster: Bed) -> AsyncIterator[Api]:
    """An admin's client of `cluster`."""
    async with cluster.api() as api:
        yield api


@pytest.fixture
async def namespace(node_api: Api) -> AsyncIterator[str]:
    """A namespace of `cluster`; its pods are gone when the test is over."""
    async with fresh_namespace(node_api) as name:
        yield name
        # In this order: nothing is created in a namespace that is going, and its own clean-up begins 5 s later.
        await node_api.delete(f"/api/v1/namespaces/{name}")
        await node_api.delete(f"/api/v1/namespaces/{name}/pods")

        async def empty() -> bool:
            return not (await node_api.get(f"/api/v1/namespaces/{name}/pods"))["items"]

        await until(empty, f"no pod left in {name}")


@pytest.fixture
async def server_api(api_server: Bed) -> AsyncIterator[Api]:
    """An admin's client of `api_server`."""
    async with api_server.api() as api:
        yield api


@pytest.fixture
async def server_namespace(server_api: Api) -> AsyncIterator[str]:
    """A namespace of `api_server`."""
    async with fresh_namespace(server_api) as name:
        yield name


@asynccontextmanager
async def fresh_namespace(api: Api, prefix: str = "test") -> AsyncIterator[str]:
    """A new namespace in which pods are admitted already. It is left to the bed's end."""
    name = f"{prefix}-{new_token()}"
    await api.create("/api/v1/namespaces", {"metadata": {"name": name}})

    async def has_account() -> bool:
        return not await api.missing(f"/api/v1/namespaces/{name}/serviceaccounts/default")

    await until(has_account, f"the ServiceAccount of {name}")
    yield name
