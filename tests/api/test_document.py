"""The JSON document says what the snapshot says, in stable names, and nothing that it does not know."""

import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from builders import GIB, allocation, device, gpu, leaf, limit, memory, pod, snapshot, usage
from exporter.model import Fault, Health, Snapshot
from golden.everything import everything
from serving.node import busy
from serving.table import served

API_PAGE = Path(__file__).parents[2] / "docs" / "api.md"


def described(facts: Snapshot, age: float = 1.0) -> Any:
    return json.loads(served(facts, age=age))


def test_what_is_unknown_is_null() -> None:
    """A figure that was not measured is null, never 0 and never missing."""
    found = described(
        snapshot(device(gpu(), attributed=None, ghost=None, host=None), usages=[usage(pod(), leaf(), None)])
    )
    (its_device,), (container,), (its_gpu,) = found["devices"], found["containers"], found["gpus"]
    unknown = {key for key, value in its_device.items() if value is None}
    accounts = ("attributed", "ghost", "host", "unattributed", "total", "used", "free", "reserved")
    assert unknown >= {f"memory_{name}_bytes" for name in accounts} | {"gpu_instance", "utilization_ratio"}
    assert container["memory_used_bytes"] is container["memory_peak_bytes"] is container["sm_utilization_ratio"] is None
    assert container["namespace"] is container["pod"] is None, "a pod that nobody named has no name"
    assert its_gpu["memory_total_bytes"] is its_gpu["power_watts"] is its_gpu["throttled"] is None


def test_not_a_number_is_null() -> None:
    """JSON has no NaN; a browser would refuse the whole document."""
    broken = snapshot(device(gpu(health=Health(power_watts=float("nan"))), attributed=0))
    assert described(broken)["gpus"][0]["power_watts"] is None


def test_bytes_that_are_no_text_are_escaped() -> None:
    """A path or a cgroup name of any bytes can stand in a fault; the document stays JSON, and says which bytes."""
    path = os.fsdecode(b"/tmp/\xff.yaml")
    facts = snapshot(faults=[Fault("names", "names_unreadable", f"cannot read {path}", subject=path)])
    (fault,) = described(facts)["faults"]
    assert (fault["message"], fault["subject"]) == (r"cannot read /tmp/\udcff.yaml", r"/tmp/\udcff.yaml")


def test_containers_carry_the_names_of_their_pods() -> None:
    """A reader of the document needs no second source to name a container."""
    who = pod("trainer-0", "team-a")
    found = described(snapshot(device(gpu(), attributed=0), usages=[usage(who, leaf(), GIB, pids=[9, 7])], pods=[who]))
    container = found["containers"][0]
    assert (container["namespace"], container["pod"], container["container"]) == ("team-a", "trainer-0", "main")
    assert (container["pod_uid"], container["memory_used_bytes"]) == (who.uid, GIB)
    assert (container["processes"], container["pids"]) == (2, [7, 9])
    assert [each["uid"] for each in found["pods"]] == [who.uid]


def test_limits_keep_their_scope() -> None:
    """A container's limit stands beside what it uses; its pod's and its processes' are in the list of limits alone."""
    own, pods, process, none = pod("own"), pod("pods"), pod("process"), pod("none")
    facts = snapshot(
        device(gpu(), attributed=0),
        usages=[usage(each, leaf()) for each in (own, pods, process, none)],
        pods=[own, pods, process, none],
        limits=[
            limit(own, leaf(), 8 * GIB, system="hami-nvidia", source="resource", enforced_by="hook", bypassed=True),
            limit(pods, leaf(), 6 * GIB, scope="pod"),
            limit(process, leaf(), 4 * GIB, scope="process", compute=0.5),
            limit(none, leaf(), problems=("no quantity",)),
        ],
        memory_declared={leaf(): 14 * GIB},
    )
    found = described(facts)
    beside = {each["pod"]: each["memory_limit_bytes"] for each in found["containers"]}
    assert beside == {"own": 8 * GIB, "pods": None, "process": None, "none": None}
    listed = {each["pod"]: (each["container"], each["scope"], each["memory_bytes"]) for each in found["limits"]}
    assert listed == {
        "own": ("main", "container", 8 * GIB),
        "pods": ("", "pod", 6 * GIB),
        "process": ("main", "process", 4 * GIB),
        "none": ("main", "container", None),
    }
    first, *_, last = found["limits"]
    assert (first["system"], first["declared_in"], first["enforced_by"]) == ("hami-nvidia", "resource", "hook")
    assert (first["bypassed"], last["bypassed"]) == (True, None)
    assert (last["problems"], found["devices"][0]["memory_declared_bytes"]) == (["no quantity"], 14 * GIB)


def test_a_limit_and_a_use_by_mps_say_so() -> None:
    """What a declaration proves stands at the limit, and what the driver lists at the container; each alone."""
    declares, listed = pod("declares"), pod("listed")
    facts = snapshot(
        device(gpu(), attributed=0),
        usages=[usage(declares, leaf()), replace(usage(listed, leaf()), mps=True)],
        pods=[declares, listed],
        limits=[limit(declares, leaf(), 8 * GIB, mps=True), limit(listed, leaf(), 8 * GIB)],
    )
    found = described(facts)
    assert {each["pod"]: each["mps"] for each in found["limits"]} == {"declares": True, "listed": False}
    assert {each["pod"]: each["mps"] for each in found["containers"]} == {"declares": False, "listed": True}


def test_pods_without_a_device_are_none_of_our_business() -> None:
    """Only pods that hold or were handed a device are listed."""
    user, holder, other = pod("user"), pod("holder"), pod("other")
    found = described(
        snapshot(usages=[usage(user, leaf())], allocations=[allocation(holder, leaf())], pods=[user, holder, other])
    )
    assert [each["name"] for each in found["pods"]] == ["holder", "user"]


def test_a_gpu_that_did_not_answer_is_listed() -> None:
    """A lost GPU is there with `up` false and its earlier XID errors, and without fields that are not known."""
    found = described(busy())["gpus"]
    assert [(each["index"], each["up"]) for each in found] == [(0, True), (1, True), (2, True), (3, True), (4, False)]
    assert set(found[4]) == {"uuid", "index", "up", "xid_errors"}


def test_xids_come_with_their_meaning() -> None:
    """A reader of the document needs no table: each XID has its meaning and its remedy, the latest first."""
    of = {each["index"]: each["xid_errors"] for each in described(busy())["gpus"]}
    assert of[0] is None, "nobody listens to this GPU, which is not the same as silence"
    assert [(one["xid"], one["count"], one["gpu_instance"]) for one in of[2]] == [(31, 3, 2)]
    assert [one["xid"] for one in of[4]] == [987, 45, 79]
    strange, _, fallen = of[4]
    assert (strange["cause"], strange["meaning"], strange["remedy"]) == (None, None, None)
    assert (fallen["cause"], fallen["meaning"]) == ("gpu", "the GPU has fallen off the bus")
    assert "drain" in fallen["remedy"]


def test_the_account_closes_in_the_document() -> None:
    """The four accounts add up to what is used, as they do in the snapshot."""
    its_gpu = gpu(memory=memory(used=10 * GIB))
    found = described(snapshot(device(its_gpu, attributed=6 * GIB, ghost=GIB, host=GIB)))["devices"][0]
    parts = [found[f"memory_{name}_bytes"] for name in ("attributed", "ghost", "host", "unattributed")]
    assert sum(parts) == found["memory_used_bytes"] == 10 * GIB


def test_an_old_snapshot_says_so() -> None:
    """After three intervals the document is stale, as the metrics are withdrawn."""
    facts = snapshot()
    assert [described(facts, age)["stale"] for age in (0.0, 15.0, 15.1)] == [False, False, True]
    assert described(facts, 15.1234567)["age_seconds"] == 15.123


def test_every_field_is_described() -> None:
    """docs/api.md names each field, and its example is a document of this version."""
    text = API_PAGE.read_text()
    found = described(busy())
    found["limits"] = described(everything())["limits"]
    fields = set(found)
    for listed in ("gpus", "devices", "containers", "limits", "allocations", "pods", "faults"):
        fields |= {key for each in found[listed] for key in each}
    fields |= set(found["tally"])
    assert {field for field in fields if f"`{field}`" not in text} == set()
    example = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    assert example is not None
    assert {*json.loads(example[1]), "policy"} == set(found)
