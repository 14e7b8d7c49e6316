"""
The names of many nodes in one process, each with the client, the token and the connections that its daemon would have.

    python -m bench.watchers FOLDER PORT

In: a folder with one for each node, named as the node, in which are `token` and `ca.crt`; the API server's port on
127.0.0.1. Out: a line with the number of live ones whenever that has changed. Law: it is what the daemon asks the API
server, by the daemon's own code: pods, owners, its node and the namespaces of its pods (all have limits) once a minute.
There is no kubelet.
"""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from random import Random

import structlog

from exporter.base.clock import SystemClock
from exporter.kube.client import Client
from exporter.kube.credentials import in_cluster
from exporter.kube.inventory import KubeInventory
from exporter.kube.namespaces import Namespaces
from exporter.kube.own_node import OwnNode

LOOK_S = 0.1


async def main(places: Sequence[Path], port: str) -> None:
    """Run them all until killed."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    clock = SystemClock()
    address = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": port}
    all_names: list[KubeInventory] = []
    async with asyncio.TaskGroup() as tasks:
        for place in places:
            client = Client(in_cluster(place, address), clock=clock)
            names = KubeInventory(client, place.name, clock=clock, random=Random())
            tasks.create_task(names.run())
            namespaces = Namespaces(client, partial(_namespaces, names), clock=clock, random=Random())
            tasks.create_task(namespaces.run())
            tasks.create_task(OwnNode(client, place.name, clock=clock, random=Random(), has_claims=lambda: False).run())
            all_names.append(names)
        told = None
        while True:
            live = sum(names.living is not None for names in all_names)
            if live != told:
                told = live
                print(live, flush=True)
            await asyncio.sleep(LOOK_S)


def _namespaces(names: KubeInventory) -> set[str]:
    return {known.pod.namespace for known in names.pods.values()}


if __name__ == "__main__":
    asyncio.run(main(sorted(Path(sys.argv[1]).iterdir()), sys.argv[2]))
