"""The node in a virtual machine, the same for all tests of the run; a namespace and a release for each test."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from cluster import image, requirements
from cluster.client import Api
from cluster.fixtures import fresh_namespace, require
from hosts.bed import GuestBed
from hosts.release import GuestRelease, released
from hosts.workloads import Workloads


@pytest.fixture(scope="session")
def bed() -> Iterator[GuestBed]:
    """A cluster whose node has cgroup v2 alone and systemd; it has the daemon's image."""
    require([*requirements.missing(node=True), *requirements.missing_for_image(), *requirements.missing_for_guest()])
    with GuestBed([image.archive()]) as started:
        yield started


@pytest.fixture
async def api(bed: GuestBed) -> AsyncIterator[Api]:
    """An admin's client."""
    async with bed.api() as client:
        yield client


@pytest.fixture
async def workloads(bed: GuestBed, api: Api) -> AsyncIterator[Workloads]:
    """A namespace for pods that hold GPU memory."""
    async with fresh_namespace(api) as namespace:
        yield Workloads(bed, api, namespace)
        await api.delete(f"/api/v1/namespaces/{namespace}")


@pytest.fixture
async def release(bed: GuestBed, api: Api, tmp_path: Path) -> AsyncIterator[GuestRelease]:
    """A namespace in which helm may install the chart."""
    async with released(bed, api, tmp_path) as made:
        yield made
