"""
The limit holds on a slow node: the whole daemon in mode enforce, on the real cluster.

In: a pod that is over its limit, and a driver that takes longer for one GPU than an interval. Out: the journal.
Law: how fast a node answers, which a tenant may influence, does not decide whether its limits hold.
"""

from __future__ import annotations

import pytest

from cluster.bed import GPUS
from cluster.offering import replicas
from cluster.stage import SHARED, Stage, ready_pods
from cluster.test_decide import CONSENT, create, deployment, label, lives
from cluster.test_enforce import ended, enforcing, journal, mode, told
from cluster.test_enforce_workloads import pods, uid_of
from scraped import series

pytestmark = pytest.mark.cluster

MEMORY = "nvmlDeviceGetMemoryInfo"
LASTS = 4.0
"""Seconds of a round, at an interval of 2 s."""


@pytest.mark.parametrize("slow", [0, 1], ids=["another GPU", "the pod's GPU"])
async def test_a_round_that_takes_two_intervals_stops_nothing(stage: Stage, namespace: str, slow: int) -> None:
    """The pod is evicted at the first request, and its neighbours live."""
    await stage.enforcing()
    await stage.guard()
    await label(stage, namespace, CONSENT)
    async with replicas(stage.bed, stage.api, SHARED, 20), stage.as_pod():
        await stage.may_evict(namespace)
        quiet = [deployment(f"quiet-{number}", "1GiB", "2Gi") for number in range(3)]
        await create(stage, namespace, deployment("greedy", "3GiB", "1Gi"), *quiet)
        await ready_pods(stage, namespace, 4)
        (greedy,) = await pods(stage, namespace, "greedy")
        stage.bed.driver.slow(MEMORY, 1000 * LASTS, gpu=GPUS[slow].uuid)
        try:
            with enforcing(stage) as daemon:
                mode(daemon, "enforce")
                ended(daemon, "verified")
                (intent, *_) = written = journal(stage)
                assert told(written) == ["intent", "sent", "acked", "ended verified"]
                assert intent["action"]["pod_uid"] == uid_of(greedy)
                page = daemon.get("/metrics")[1]
                rounds = [series(page, f"round_duration_seconds_{one}")[()] for one in ("sum", "count")]
                assert rounds[0] / rounds[1] > LASTS / 2, "some rounds read one GPU alone"
        finally:
            stage.bed.driver.clear_switch(f"slow.{MEMORY}", gpu=GPUS[slow].uuid)
        for number in range(3):
            (one,) = await pods(stage, namespace, f"quiet-{number}")
            assert [*lives([one]).values()] == [("Running", 0, False)]
    await stage.unguard()
