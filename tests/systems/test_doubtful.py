"""
A doubtful declaration below a pod's limit, played through the real parsers, accounts, limits and policy.

What is in doubt is only reported. So a tenant may try to write something doubtful that is smaller than its own limit.
"""

from typing import Any

import pytest

from systems.player import play
from systems.test_mps import NAMED, UUID, changed, hami, pod, sliced, state

WRITTEN: dict[str, dict[str, Any]] = {
    "a driver's request in the environment": {"env": {"NVIDIA_GPU_MEMORY_REQUEST": "1024"}},
    "HAMi's resource on a node without HAMi": {"limits": {"nvidia.com/gpumem": "8192"}},
    "a slice of nos on a node without nos": {"limits": {"nvidia.com/gpu-8gb": "1"}},
    "Volcano's memory on a node without Volcano": {"limits": {"volcano.sh/vgpu-memory": "8192"}},
}


@pytest.mark.parametrize("name", WRITTEN)
def test_a_doubtful_amount_hides_no_sure_one(name: str) -> None:
    """A pod is acted on above the limit that is sure, whatever smaller doubtful amount it writes beside it."""
    assert state(play(changed(sliced(**WRITTEN[name]))), "greedy") == ("evict", None)


def test_a_doubtful_amount_hides_no_schedulers_grant() -> None:
    """
    What HAMi's scheduler granted counts beside a driver's request in the environment.

    A pod that stays within the granted amount is not acted on.
    """
    granted = {"hami.io/vgpu-devices-allocated": f"{UUID},NVIDIA,16384,0:;"}
    limits = {"nvidia.com/gpu": "1", "nvidia.com/gpumem": "16384"}
    env = {"NVIDIA_GPU_MEMORY_REQUEST": "1024"}
    pods = [pod(name, limits=limits, annotations=granted, env=env) for _, name in NAMED]
    played = play(changed({**hami("hami-core"), "pods": pods}))
    assert (state(played, "greedy"), state(played, "meek")) == (("evict", None), ("ok", None))


@pytest.mark.parametrize("lacking", ["cerit.io/gpu-mem", "rainbond.com/gpu-mem", "gpu-share.com/gpu-mem"])
def test_another_resource_of_the_same_system_hides_no_grant(lacking: str) -> None:
    """The node has `aliyun.com/gpu-mem`, of which 16 were granted. A tenant adds 1 of a name that the node lacks."""
    resource, node = "aliyun.com/gpu-mem", {"aliyun.com/gpu-count": "1", "aliyun.com/gpu-mem": "80"}
    facts = {
        "node": {"capacity": node},
        "allocatable": {resource: [f"{UUID}-_-" + "{0..79}"]},
        "allocations": [{"pod": "greedy", "resource": resource, "ids": [f"{UUID}-_-" + "{0..15}"]}],
        "pods": [pod(name, limits={resource: "16", lacking: "1"}) for _, name in NAMED],
    }
    assert state(play(changed(facts)), "greedy") == ("evict", None)


@pytest.mark.parametrize("older", ["hami.sh/vgpu-devices-allocated", "4pd.io/vgpu-ids-new"])
def test_an_older_annotation_casts_no_doubt_on_the_schedulers(older: str) -> None:
    """HAMi's scheduler granted what the resource says. A tenant adds twice that under an older name: no change."""
    facts = hami("hami-core")
    for each in facts["pods"]:
        each["metadata"]["annotations"][older] = f"{UUID},NVIDIA,32768,0:;"
    assert state(play(changed(facts)), "greedy") == ("evict", None)


@pytest.mark.parametrize("name", WRITTEN)
def test_a_doubtful_amount_hides_no_fair_share(name: str) -> None:
    """With `fair_share` a pod that writes nothing but a doubtful amount has its share of the replicas."""
    facts = sliced(**WRITTEN[name])
    for each in facts["pods"]:
        del each["metadata"]["annotations"]
    played = play(changed({**facts, "config": {"limits": {"fair_share": True}}}))
    assert state(played, "greedy") == ("evict", None)


def test_a_fair_share_replaces_no_amount_in_an_unknown_unit() -> None:
    """HAMi is there and its factor is unknown: 4096 may be 40 GiB. A pod with 30 GiB is reported, and not acted on."""
    facts = hami("hami-core")
    facts["allocatable"] = {"nvidia.com/gpu": [f"{UUID}::" + "{0..3}"]}
    facts["allocations"] = [{"pod": name, "resource": "nvidia.com/gpu", "ids": [f"{UUID}::{n}"]} for n, name in NAMED]
    facts["pods"] = [pod(name, limits={"nvidia.com/gpu": "1", "nvidia.com/gpumem": "4096"}) for _, name in NAMED]
    played = play(changed({**facts, "config": {"limits": {"fair_share": True}}}))
    assert state(played, "greedy") == ("held", "report_only")
