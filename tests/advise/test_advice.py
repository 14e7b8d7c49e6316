"""Advised limits: the policy would not have acted with them, and what they are written as is read back as them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from math import ceil
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from enforcer.policy.vocabulary import State, Trigger
from exporter.advise.advice import STEP, Kind, advise
from exporter.advise.declaring import OWN, Declared, declared
from exporter.advise.observed import Observed, observed
from exporter.advise.patches import patch, place
from exporter.advise.series import Day, Series
from exporter.limits.loading import builtin
from exporter.limits.offline import explain
from exporter.limits.rows import System, What
from exporter.model import Context, Scope
from policy.scenes import GIB, UNHURRIED, Actor, Play

MIB = 2**20
HURRIED = replace(UNHURRIED, trigger=Trigger.LIMIT, warn_after=0.0, grace=0.0)
"""The strictest rules that an operator may write: no time over the limit is allowed."""


def quantile(readings: Sequence[float], share: float) -> float:
    """Pick a reading as PromQL's quantile does, without the interpolation."""
    ordered = sorted(readings)
    return float(ordered[min(len(ordered) - 1, int(share * len(ordered)))])


def day(readings: Sequence[float]) -> Day:
    """Sum up the readings of a day."""
    return Day(max(readings), quantile(readings, 0.99), quantile(readings, 0.95), quantile(readings, 0.25))


def use(*days: Sequence[float], device: int = 80 * GIB, **facts: Any) -> Observed:
    """Sum up one container on one device."""
    return observed([Series({number: day(one) for number, one in enumerate(days)}, device, **facts)])


readings = st.lists(st.integers(0, 70 * GIB), min_size=3, max_size=30)


@settings(deadline=None)
@given(st.lists(readings, min_size=3, max_size=4), st.sampled_from(Context), st.integers(1, 4), st.booleans())
def test_with_the_advised_limit_the_policy_would_not_have_acted(
    days: list[list[int]], context: Context, processes: int, restarts: bool
) -> None:
    """
    Replay of a history through the real policy, under the strictest rules: neither an action nor a state over.

    Bursts, growth, several processes with contexts, restarts; limits that include contexts and limits that do not.
    """
    advice = advise(use(*days), 0.0, 3)
    if advice.limit is None:
        return
    play = Play(HURRIED)
    for number, one in enumerate(days):
        for used in one:
            each = (used // processes,) * processes
            actor = Actor(
                "train-1", sum(each), limit=advice.limit, context=context, processes=each,
                generation=number if restarts else 0,
            )  # fmt: skip
            play.step(actor)
            assert play.standing(actor) is State.OK
    assert not play.actions


def test_the_replay_would_notice_a_limit_that_is_too_low() -> None:
    """The same play with half of the peak as its limit ends in an action."""
    play = Play(HURRIED)
    play.until(State.ACTING, Actor("train-1", 40 * GIB, limit=20 * GIB))
    assert play.actions


@given(st.lists(readings, min_size=3, max_size=4), st.floats(0, 2))
def test_a_limit_is_the_peak_and_the_headroom(days: list[list[int]], headroom: float) -> None:
    """At least that, less than a step more, and below the device's memory."""
    advice, peak = advise(use(*days), headroom, 3), max(max(one) for one in days)
    if advice.limit is not None:
        assert peak <= advice.limit and peak * (1 + headroom) <= advice.limit + 0.001
        assert advice.limit < peak * (1 + headroom) + STEP + 1
        assert advice.limit < 80 * GIB and advice.limit % STEP == 0


def test_few_days_are_unknown() -> None:
    """Two days say nothing about the third."""
    advice = advise(use([GIB] * 9, [GIB] * 9), 0.1, 3)
    assert advice.kind is Kind.UNKNOWN and advice.limit is None
    assert advice.why == "readings of 2 days, and 3 are needed (--min-days)"


def test_memory_that_is_taken_in_advance_gets_perhaps_a_fraction() -> None:
    """vLLM takes nine tenths of the device at its start: its peak says nothing about its need. A limit still holds."""
    starts = [0, 30 * GIB, *[72 * GIB] * 30]
    vllm = advise(use(starts, starts, starts), 0.1, 3)
    assert vllm.kind is Kind.FRACTION and vllm.limit == 79.25 * GIB
    assert "most of the device: perhaps it takes a fraction" in vllm.why
    jax = [60 * GIB] * 30
    assert advise(use(jax, jax, jax), 0.1, 3).kind is Kind.FRACTION
    reserved = [int(0.75 * (23034 - 471)) * MIB] * 30  # JAX on a GPU of 23034 MiB
    assert advise(use(reserved, reserved, reserved, device=23034 * MIB), 0.1, 3).kind is Kind.FRACTION
    whole = [79 * GIB] * 30
    tensorflow = advise(use(whole, whole, whole), 0.1, 3)
    assert tensorflow.kind is Kind.FRACTION and tensorflow.limit is None and "a whole device" in tensorflow.why
    grows = [number * 2 * GIB for number in range(36)]
    assert advise(use(grows, grows, grows), 0.1, 3).kind is Kind.LIMIT


@pytest.mark.parametrize(("held", "device"), [(45, 80), (20, 40), (19, 40)])
def test_steady_use_of_half_a_device_gets_a_limit(held: int, device: int) -> None:
    """A PyTorch job that is flat has no fraction to set."""
    steady = [held * GIB] * 30
    advice = advise(use(steady, steady, steady, device=device * GIB), 0.1, 3)
    assert advice.kind is Kind.LIMIT and advice.limit is not None and advice.limit >= held * GIB * 11 // 10


def test_a_rare_peak_is_a_limit_and_said() -> None:
    """Flat on 13 of 14 days, and a spike of 20 minutes: the spike counts, and P95 says that it is rare."""
    flat, spike = [10 * GIB] * 72, [10 * GIB] * 71 + [40 * GIB]
    advice = advise(use(*[flat] * 13, spike, device=40 * GIB * 2), 0.1, 3)
    assert (advice.kind, advice.limit) == (Kind.LIMIT, 44 * GIB)
    (remark,) = advice.remarks
    assert remark.startswith("the peak is rare: P95 is 10.00Gi")


def test_one_pod_that_bursts_is_no_fraction() -> None:
    """Flatness holds for the pod with the peak, too."""
    flat, bursts = [60 * GIB] * 30, [60 * GIB] * 29 + [70 * GIB]
    pods = [Series({number: day(one) for number in range(3)}, 80 * GIB) for one in (flat, flat, bursts)]
    assert advise(observed(pods), 0.1, 3).kind is Kind.LIMIT
    assert advise(observed(pods[:2]), 0.1, 3).kind is Kind.FRACTION


def test_use_that_fills_its_limit_may_be_taken_in_advance() -> None:
    """A limit with a headroom of 10 % is not filled by what it was made for."""
    flat = [20 * GIB] * 30
    full = advise(use(flat, flat, flat, limit=20 * GIB, enforced_by="hook"), 0.1, 3)
    assert (full.kind, full.limit) == (Kind.FRACTION, 22 * GIB) and full.remarks == ()
    assert advise(use(flat, flat, flat, limit=22 * GIB, enforced_by="hook"), 0.1, 3).kind is Kind.LIMIT


def test_a_filled_instance_may_need_a_larger_profile_or_a_smaller_fraction() -> None:
    """Both answers in one sentence, and none that contradicts it."""
    flat = [9 * GIB] * 30
    instance: dict[str, Any] = {"device": 10 * GIB, "instance": True, "limit": 10 * GIB, "enforced_by": "hardware"}
    advice = advise(use(flat, flat, flat, **instance), 0.1, 3)
    assert (advice.kind, advice.limit, advice.remarks) == (Kind.FRACTION, None, ())
    assert "fills the instance: a larger profile may be needed; if it is vLLM or JAX, lower" in advice.why
    bursts = [GIB] * 29 + [9.5 * GIB]
    whole = advise(use(bursts, bursts, bursts, **instance), 0.1, 3)
    assert whole.kind is Kind.WHOLE and "all of the instance: a larger profile may be needed" in whole.why


def test_time_over_the_limit_of_several_pods_is_a_sum() -> None:
    """Three pods that were over for 7 minutes each are 21 minutes, in 8 minutes of history."""
    one = Series({number: day([GIB, 4 * GIB]) for number in range(3)}, 80 * GIB, limit=2 * GIB, over_seconds=420.0)
    (said, *_) = advise(observed([one] * 3), 0.1, 3).remarks
    assert said == "it was over its limit for 21 min, added up over 3 containers and devices"


def test_more_days_than_were_asked_about_need_a_longer_time() -> None:
    """--min-days alone cannot be met then."""
    why = advise(use(*[[GIB] * 9] * 14), 0.1, 100, 14).why
    assert why.startswith("readings of 14 days, and 100 are needed (--min-days)")
    assert why.endswith("; the time asked about has 14 days: set --since 100d")


def test_a_need_that_a_device_cannot_hold_with_headroom_is_a_whole_device() -> None:
    """No limit above what the device has is advised."""
    bursts = [GIB] * 20 + [78 * GIB]
    assert advise(use(bursts, bursts, bursts), 0.1, 3).kind is Kind.WHOLE


@pytest.mark.parametrize(
    ("facts", "remark"),
    [
        ({"limit": 8 * GIB, "enforced_by": "hook"}, "its peak is its limit, which hook enforces"),
        ({"limit": 8 * GIB, "enforced_by": "none"}, None),
        ({"limit": 4 * GIB, "enforced_by": "hook"}, None),
        ({"limit": 4 * GIB, "over_seconds": 600.0}, "it was over its limit for 10 min"),
        ({"acted": True, "over_seconds": 600.0}, "an action ended a pod of it"),
    ],
)
def test_a_peak_that_was_cut_off_is_said(facts: dict[str, Any], remark: str | None) -> None:
    """Behind a hook, or ended by us, a container may need more than it ever had."""
    one = [GIB, 8 * GIB]
    (*said,) = advise(use(one, one, one, **facts), 0.1, 3).remarks
    assert said == [] if remark is None else said[0].startswith(remark)


def test_a_limit_that_was_lowered_did_not_cut_off_the_peak() -> None:
    """Nor is it said of a new pod's limit what the old pod's did."""
    old, new = ({number: day([GIB, held * GIB]) for number in range(3)} for held in (20, 5))
    pods = [
        Series(old, 80 * GIB, limit=20 * GIB, enforced_by="hook"),
        Series(new, 80 * GIB, limit=10 * GIB, enforced_by="hook"),
    ]
    (said,) = advise(observed(pods), 0.1, 3).remarks
    assert said == "its peak is the limit of its pod (20.00Gi), which hook enforces: its need may be larger"


def test_a_peak_that_the_kernel_remembers_may_be_from_before() -> None:
    """It counts, and the sentence says what the readings of the time show."""
    days = {number: replace(day([GIB, 5 * GIB]), kernel=30 * GIB) for number in range(3)}
    advice = advise(observed([Series(days, 80 * GIB)]), 0.1, 3)
    assert (advice.limit, advice.remarks) == (33 * GIB, ())
    assert advice.why == (
        "its peak since its start, perhaps before these 3 days (readings: 5.00Gi at most), and 10% more"
    )
    days[0] = day([GIB, 5 * GIB])
    assert advise(observed([Series(days, 80 * GIB)]), 0.1, 3).why == "its peak in 3 days, and 10% more"


def on(size: float, days: Sequence[int], *held: int) -> Series:
    """A container on a GPU of so many GiB."""
    return Series({number: day([one * GIB for one in held]) for number in days}, size * GIB)


def test_devices_of_several_sizes_are_judged_each() -> None:
    """A limit that the larger device can hold is no whole device; the smaller one is named."""
    advice = advise(observed([on(24, range(4), 1, 20), on(80, range(4), 1, 30)]), 0.1, 3)
    assert (advice.kind, advice.limit) == (Kind.LIMIT, 33 * GIB)
    assert advice.remarks[:2] == (
        "devices differ: its peak is 20.00Gi on devices of 24.00Gi and 30.00Gi on devices of 80.00Gi",
        "33.00Gi does not fit on devices of 24.00Gi",
    )
    whole = advise(observed([on(24, range(4), 1, 20), on(80, range(4), 1, 78)]), 0.1, 3)
    assert whole.kind is Kind.WHOLE
    alike = advise(observed([on(79.6, range(4), 1, 20), on(80, range(4), 1, 30)]), 0.1, 3)
    assert not any("devices differ" in one for one in alike.remarks)


def test_use_is_a_fraction_where_it_is_one_on_devices_of_each_size() -> None:
    """A steady job that fills a small device, and half of a large one, takes no fraction."""
    steady = advise(observed([on(24, range(4), *[20] * 9), on(80, range(4), *[20] * 9)]), 0.1, 3)
    assert (steady.kind, steady.limit) == (Kind.LIMIT, 22 * GIB)
    jax = advise(observed([on(24, range(14), *[18] * 9), on(80, range(4), *[60] * 9)]), 0.1, 3)
    assert jax.kind is Kind.FRACTION
    assert jax.why.startswith(
        "it holds 18.00Gi on devices of 24.00Gi and 60.00Gi on devices of 80.00Gi, as long as it is there, most of"
    )


def test_flat_use_of_some_days_is_not_said_of_all() -> None:
    """One pod held 59 GiB for two weeks, another 62 GiB for four days."""
    advice = advise(observed([on(80, range(14), *[59] * 9), on(80, range(4), *[62] * 9)]), 0.1, 3)
    assert advice.kind is Kind.FRACTION and advice.why.startswith("it holds 62.00Gi all the time on 4 of 14 days, ")


WRITABLE = [
    system
    for system in builtin()
    if isinstance(declared(builtin(), system.name, "", "main", 12 * GIB, device=80 * GIB, devices=1), Declared)
]


def manifest(written: Declared, system: System) -> dict[str, Any]:
    """A pod that declares this and nothing else."""
    made = patch([(written, "main")], "Pod", "team-a", "one")
    spec = made.get("spec", {"containers": [{"name": "main"}]})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "one", "namespace": "team-a", **made.get("metadata", {})},
        "spec": {**spec, **({"schedulerName": system.detect.schedulers[0]} if system.detect.schedulers else {})},
    }


@pytest.mark.parametrize("system", WRITABLE, ids=lambda one: one.name)
@pytest.mark.parametrize("limit", [12 * GIB, 3 * GIB + 256 * MIB])
def test_a_written_limit_is_read_back(system: System, limit: int) -> None:
    """What `advise` prints is read by `explain` as at least the limit, and less than one unit more."""
    written = declared(builtin(), system.name, "", "main", limit, device=80 * GIB, devices=1)
    assert isinstance(written, Declared)
    unit = float(written.row.units[0]) * (80 * GIB if written.row.what is What.MEMORY_RATIO else 1)
    assert limit <= written.bytes < limit + max(unit, MIB)
    if len(written.row.units) > 1 or written.row.what is What.MEMORY_RATIO:
        return  # the node decides on the unit: the note says so
    found = json.loads(explain(yaml.safe_dump(manifest(written, system)), None, builtin(), as_json=True).text)
    read = [one["bytes"] for entry in found for one in entry["candidates"] if one["bytes"] is not None]
    assert written.bytes in read, found


def test_most_systems_can_be_written() -> None:
    """Each system with an amount that a user writes has a patch of its own; the others get words or our annotation."""
    own = {
        system.name
        for system in WRITABLE
        if isinstance(one := declared(builtin(), system.name, "", "main", GIB, device=80 * GIB, devices=1), Declared)
        and any(row is one.row for row in system.rows)
    }
    assert {"hami-nvidia", "volcano-vgpu", "gpu-manager", "vgpu-manager", "gpu-fractioning", "koordinator"} <= own
    assert len(own) >= 20
    sliced = declared(builtin(), "nvidia-timeslicing", "resource", "main", GIB, device=80 * GIB, devices=1)
    assert isinstance(sliced, Declared) and sliced.key == "nvidia.com/container.main.gpu-memory.limit"
    assert sliced.text == "1024Mi" and any(
        row is sliced.row for one in builtin() if one.name == OWN for row in one.rows
    )


@pytest.mark.parametrize(
    ("system", "scope", "present", "words"),
    [
        ("nvidia-mig", "instance", None, "choose the smallest MIG profile with at least 1Gi"),
        ("amd", "instance", None, "choose the smallest memory partition with at least 1Gi"),
        ("ascend-mindcluster", "instance", None, "choose the smallest vNPU template with at least 1Gi"),
        ("nvidia-dra", "", None, "in the capacity of the ResourceClaim"),
        ("nvidia-mps", "process", None, "MPS limits each process: divide 1Gi by the number of its"),
        ("ascend-hami", "container", 8 * GIB, "set huawei.com/Ascend*-memory to 1024; the name of the model"),
        ("cambricon", "container", 80 * GIB, "it has a whole device, and needs 1Gi"),
        ("amd", "container", 80 * GIB, "it has a whole device, and needs 1Gi"),
        ("nvidia-vgpu", "container", 20 * GIB, "choose the smallest share that the system offers"),
        ("nvidia-gpu", "container", None, "it has a whole device, and needs 1Gi"),
    ],
)
def test_what_no_row_can_write_gets_words_of_its_vendor(
    system: str, scope: str, present: float | None, words: str
) -> None:
    """A partition has another name with each vendor, and a share of a device is no whole one."""
    assert system in {one.name for one in builtin()}
    said = declared(
        builtin(), system, "resource", "main", GIB, device=80 * GIB, devices=1, scope=scope, present=present
    )
    assert isinstance(said, str) and words in said


def test_a_share_of_a_device_is_written_where_its_system_has_amounts() -> None:
    """Cambricon's hardware enforces amounts, and they can be written."""
    said = declared(
        builtin(), "cambricon", "resource", "main", GIB, device=80 * GIB, devices=1, scope="container", present=4 * GIB
    )
    assert isinstance(said, Declared) and (said.key, said.text) == ("cambricon.com/mlu.smlu.vmemory", "4")
    assert "--min-dsmlu-unit in the vendor's plugin" in said.note


OF_PODS = [
    system.name
    for system in builtin()
    if any(row.scope is Scope.POD and row.what is What.MEMORY and row.written_by is None for row in system.rows)
]


@pytest.mark.parametrize("system", OF_PODS)
def test_a_limit_of_the_pod_is_written_as_one(system: str) -> None:
    """The amount stays that of the pod, in the place where the present one is."""
    (entry,) = [one for one in builtin() if one.name == system]
    for source in {row.mechanism for row in entry.rows if row.scope is Scope.POD and row.what is What.MEMORY}:
        written = declared(builtin(), system, source, "main", GIB, device=80 * GIB, devices=1, scope="pod")
        assert isinstance(written, Declared) and written.row.scope is Scope.POD
        assert written.row in entry.rows and "for all containers of the pod together" in written.note


def test_systems_with_limits_of_pods_are_known() -> None:
    """These were asked for."""
    assert {"gpushare", "ack", "kubeshare", "koordinator", "tensor-fusion", "open-simulator"} <= set(OF_PODS)


def test_an_amount_for_several_devices_is_their_sum() -> None:
    """gpushare divides the amount of a pod by its devices."""
    two = declared(builtin(), "gpushare-count", "resource", "main", 12 * GIB, device=80 * GIB, devices=2)
    rows = {system.name: system for system in builtin()}
    total = next(name for name, system in rows.items() if any(row.per == "total" for row in system.rows))
    two = declared(builtin(), total, "resource", "main", 12 * GIB, device=80 * GIB, devices=2)
    assert isinstance(two, Declared)
    assert two.bytes >= 12 * GIB and "for 2 devices together" in two.note
    assert int(two.text) == 2 * ceil(12 * GIB / two.row.units[0])


@pytest.mark.parametrize(
    ("kind", "path"),
    [
        ("Deployment", ("spec", "template", "spec", "containers")),
        ("CronJob", ("spec", "jobTemplate", "spec", "template", "spec", "containers")),
        ("PyTorchJob", ("spec", "containers")),
        ("Job", ("spec", "containers")),
        ("StaticPod", ("spec", "containers")),
    ],
)
def test_a_patch_is_for_the_pod_template_of_its_workload(kind: str, path: tuple[str, ...]) -> None:
    """Kubernetes' own kinds by name; the template alone where its place is not known, or cannot be changed."""
    written = declared(builtin(), "hami-nvidia", "resource", "main", 12 * GIB, device=80 * GIB, devices=1)
    assert isinstance(written, Declared)
    made = patch([(written, "main")], kind, "team-a", "llm")
    found: Any = made
    for key in path:
        found = found[key]
    both = {"nvidia.com/gpumem": "12288"}  # the API server refuses a request that differs from the limit
    assert found == [{"name": "main", "resources": {"limits": both, "requests": both}}]
    whole = kind in ("Deployment", "CronJob")
    assert made.get("metadata") == ({"namespace": "team-a", "name": "llm"} if whole else None)
    assert (place(kind, "llm") == "") == (kind == "Deployment")


def test_two_containers_are_one_patch() -> None:
    """Two patches would restart the pods twice."""
    catalogue = builtin()
    hami = [declared(catalogue, "hami-nvidia", "", name, GIB, device=None, devices=1) for name in ("a", "b")]
    own = [declared(catalogue, OWN, "", name, GIB, device=None, devices=1) for name in ("a", "b")]
    written = [one for one in (*hami, *own) if isinstance(one, Declared)]
    made = patch(zip(written, ("a", "b", "a", "b"), strict=True), "Deployment", "team-a", "llm")
    template = made["spec"]["template"]
    assert template["spec"]["containers"] == [
        {"name": name, "resources": {part: {"nvidia.com/gpumem": "1024"} for part in ("limits", "requests")}}
        for name in ("a", "b")
    ]
    assert template["metadata"]["annotations"] == {
        f"nvidia.com/container.{name}.gpu-memory.limit": "1024Mi" for name in ("a", "b")
    }
