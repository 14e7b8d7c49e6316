"""
From a container that holds too much to the message that its owner reads, and to the one that says that it is over.

Real parts all the way: pods of a real kubelet, `gpusteward run`, a Prometheus that scrapes it and has the rules of
alerts/. Then an Alertmanager with the example's routes and templates, and the channel that its messages go to. Only
the driver's library is fake.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml

from alerts.alertmanager import running, until
from alerts.written import RULES
from cluster.bed import GPUS, NODE_NAME
from cluster.client import Api
from cluster.fixtures import fresh_namespace
from cluster.manifests import pod
from cluster.stage import RUN, SHARED, Stage, ready_pods, spec
from prometheus.scraping import scraping

pytestmark = [pytest.mark.cluster, pytest.mark.prometheus]

HURRY = 300
"""Times: `for: 5m` takes a second. Rules are evaluated each second (prometheus.scraping), not each minute."""
UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
LIMIT = {"nvidia.com/container.main.gpu-memory.limit": "8Gi"}


def hurried(folder: Path) -> list[str]:
    """Write the rules of alerts/ with each `for` divided by HURRY; nothing else in them is changed."""
    folder.mkdir()
    for path in RULES:
        rules = yaml.safe_load(path.read_text())
        for rule in (rule for group in rules["groups"] for rule in group["rules"] if "for" in rule):
            rule["for"] = f"{1000 * int(rule['for'][:-1]) * UNITS[rule['for'][-1]] // HURRY}ms"
        (folder / path.name).write_text(yaml.safe_dump(rules))
    return [str(folder / path.name) for path in RULES]


@pytest.fixture
async def owned(node_api: Api) -> AsyncIterator[str]:
    """A namespace of team-b's by the example's routes; its pods are gone when the test is over."""
    async with fresh_namespace(node_api, "team-b") as name:
        yield name
        await node_api.delete(f"/api/v1/namespaces/{name}")
        await node_api.delete(f"/api/v1/namespaces/{name}/pods")


async def test_the_owner_is_told_and_told_again_when_it_is_over(stage: Stage, owned: str, tmp_path: Path) -> None:
    """
    Pod, container, device, used, limit, the limit's source and what to do reach the owner's channel; so does the end.

    The neighbour on the same GPU, which holds less than its limit, is in no message.
    """
    for name, held in (("greedy", "4GiB"), ("quiet", "2GiB")):
        made = pod(name, spec(f"alloc visible {held} sm=40", resource=SHARED))
        made["metadata"]["annotations"] = LIMIT
        await stage.api.create(f"/api/v1/namespaces/{owned}/pods", made)
    pods = {one["metadata"]["name"]: one["metadata"]["uid"] for one in await ready_pods(stage, owned, 2)}
    greedy = stage.bed.driver.workload(pods["greedy"])
    for part in ("prometheus", "alertmanager"):
        (tmp_path / part).mkdir()
    with ExitStack() as stack:
        daemon = stack.enter_context(stage.daemon(command=RUN))
        alertmanager = stack.enter_context(running(tmp_path / "alertmanager"))
        to = {"static_configs": [{"targets": [alertmanager.url.removeprefix("http://")]}]}
        beside = {"rule_files": hurried(tmp_path / "rules"), "alerting": {"alertmanagers": [to]}}
        address = daemon.url.removeprefix("http://")
        prometheus = stack.enter_context(scraping(address, tmp_path / "prometheus", beside=beside))

        def told(word: str) -> Mapping[str, Any]:
            """Wait for a message to the owners with this word; that message."""

            def look() -> Mapping[str, Any] | None:
                return next((one for one in alertmanager.said("#team-b") if word in one["text"]), None)

            return until(look, f"{word} in #team-b")

        def judged() -> bool:
            found = prometheus.get("/api/v1/query", query="subject:gpusteward_memory_used:bytes")["result"]
            return {one["metric"]["pod"] for one in found if one["metric"]["namespace"] == owned} == {*pods}

        until(judged, "both pods and their limits in Prometheus")
        assert alertmanager.said("#team-b") == []

        greedy.command("alloc visible 6GiB")
        first = told("*critical*")
        assert re.fullmatch(rf"\[FIRING:[12]\] GPUMemoryOverLimit in {owned} on {NODE_NAME}", first["title"])
        assert (
            f"*critical* Pod {owned}/greedy, container main, holds 10GiB of GPU 1 ({GPUS[1].uuid}) on {NODE_NAME}. Its "
            "limit is 8GiB (gpusteward, annotation). Its neighbours may run out of memory. Lower its usage, or declare "
            "a higher limit. In mode enforce the pod may be evicted.\n"
        ) in first["text"]
        assert "/docs/runbooks/GPUMemoryOverLimit.md\n" in first["text"]

        greedy.command("free")
        greedy.command("alloc visible 4GiB")
        last = told("*resolved* GPU memory is over its limit.")
        assert (
            f"container=main gpu=1 namespace={owned} node={NODE_NAME} pod=greedy uuid={GPUS[1].uuid}\n" in last["text"]
        )
        assert not [one for one in alertmanager.messages if "quiet" in str(one)]
