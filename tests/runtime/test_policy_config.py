"""The section `policy`, from the file to the rules."""

import json
import os
import re
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from default_rules import default_rules
from enforcer.policy.rules import Budget, Budgets, Protect, Rules
from enforcer.policy.vocabulary import Mode, Rung, Trigger
from enforcer.runtime.policy_config import impossible, meaningless, rules_of
from exporter.base.version import VERSION
from exporter.config import Arguments, Config, ConfigError, load
from exporter.config.policy import Policy
from exporter.model import Tolerance

SCHEMA = Path(__file__).parents[2] / "deploy" / "charts" / "gpusteward" / "values.schema.json"
NOT_RULES = {"stop_file", "journal", "admission"}
"""Keys of the shell around the policy: files, and what has to be there before the daemon acts on a pod."""

PROTECT = (
    "{namespaces: [i-*], priority_at_least: 1000, labels: {tier: gold}, "
    "daemon_sets: true, bare_pods: true, third_party: false}"
)
OTHERWISE: dict[str, tuple[str, dict[str, Any]]] = {
    "mode": ("{mode: warn}", {"mode": Mode.WARN}),
    "trigger": ("{trigger: contended}", {"trigger": Trigger.CONTENDED}),
    "tolerance": ("{tolerance: {ratio: 0.1, bytes: 1Gi, per_process: 0}}", {"tolerance": Tolerance(0.1, 2**30, 0)}),
    "warn_after": ("{warn_after: 1m}", {"warn_after": 60.0}),
    "grace": ("{grace: 1h}", {"grace": 3600.0}),
    "grace, none": ("{warn_after: 0s, grace: 0s}", {"warn_after": 0.0, "grace": 0.0}),
    "ladder": ("{ladder: [notify, fence, kill]}", {"ladder": (Rung.NOTIFY, Rung.FENCE, Rung.KILL)}),
    "when_blocked": (
        "{ladder: [notify, evict, kill], when_blocked: kill}",
        {"ladder": (Rung.NOTIFY, Rung.EVICT, Rung.KILL), "kill_when_blocked": True},
    ),
    "mps": ("{mps: evict}", {"mps": Rung.EVICT}),
    "namespaces": ("{namespaces: {label: example.com/gpus=take}}", {"consent": ("example.com/gpus", "take")}),
    "budgets": (
        "{budgets: {node: 1/1m, namespace: 0/1h30m}}",
        {"budgets": Budgets(Budget(1, 60.0), Budget(0, 5400.0))},
    ),
    "protect": (
        f"{{protect: {PROTECT}}}",
        {"protect": Protect(("i-*",), 1000, {"tier": "gold"}, daemon_sets=True, bare_pods=True, third_party=False)},
    ),
    "spacing": ("{spacing: 5m}", {"spacing": 300.0}),
    "hold_off": ("{hold_off: 0s}", {"hold_off": 0.0}),
    "trusted_vendors": ("{trusted_vendors: [nvidia, amd]}", {"trusted_vendors": frozenset({"nvidia", "amd"})}),
}
"""Key to a text with another value, and what that changes in the rules."""


def written(folder: Path, policy: str, more: str = "") -> Config:
    file = folder / "config.yaml"
    file.write_text(f"{more}\npolicy: {policy}\n")
    return load(Arguments(file), meaningless)


def test_each_key_is_tried_here() -> None:
    """A key of the section without an example here might have no effect, and no test would show it."""
    tried = {key.partition(",")[0] for key in OTHERWISE}
    assert tried | NOT_RULES == set(Policy.__struct_fields__)


@pytest.mark.parametrize(("text", "changed"), OTHERWISE.values(), ids=OTHERWISE)
def test_each_key_reaches_the_rules(tmp_path: Path, text: str, changed: dict[str, Any]) -> None:
    """What is written is what is meant, in the rules' units; nothing else changes with it."""
    assert rules_of(written(tmp_path, text)) == replace(default_rules(), **changed)


def test_the_rules_keep_the_beat_of_the_sampler(tmp_path: Path) -> None:
    """`sampling.interval` is the unit of "one interval apart" and of "a gap"."""
    config = written(tmp_path, "{warn_after: 500ms, spacing: 1s}", "sampling: {interval: 200ms}")
    assert rules_of(config) == replace(default_rules(), warn_after=0.5, spacing=1.0, interval=0.2)


def test_the_own_pod_is_protected() -> None:
    """From the environment, through the rules."""
    rules = rules_of(load(Arguments()), own_pod="uid-1", own_namespace="gpusteward")
    assert (rules.own_pod, rules.own_namespace) == ("uid-1", "gpusteward")
    assert rules_of(load(Arguments())).own_pod is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{grace: -1s}", "policy.grace: expected a duration"),
        ("{grace: 61m}", "policy.grace: expected a duration from 0s to 3600s, got 61m"),
        ("{warn_after: 61m}", "policy.warn_after: expected a duration from 0s to 3600s, got 61m"),
        ("{spacing: 1s}", "policy.spacing: expected a duration of at least one sampling.interval, got 1s"),
        ("{ladder: []}", "policy.ladder: expected some of notify, fence, evict, kill, in this order, got []"),
        ("{ladder: [evict, evict]}", "policy.ladder: expected some of notify, fence, evict, kill, in this order"),
        ("{ladder: [evict, notify]}", "policy.ladder: expected some of notify, fence, evict, kill, in this order"),
        ("{ladder: [notify, evict, kill]}", "policy.when_blocked: expected kill where the ladder has both"),
        ("{when_blocked: kill}", "policy.when_blocked: expected kill where the ladder has both"),
        ("{tolerance: {ratio: 1.5}}", "policy.tolerance: expected a ratio from 0 to 1"),
        ("{tolerance: {ratio: .nan}}", "policy.tolerance"),
        ("{budgets: {node: 3/0s}}", 'policy.budgets.node: expected a number of actions and a duration such as "3/10m"'),
        ("{budgets: {node: -1/10m}}", "policy.budgets.node"),
        ("{budgets: {namespace: 3}}", "policy.budgets.namespace"),
        ("{tolerance: {bytes: much}}", 'policy.tolerance.bytes: expected bytes as a quantity such as "256Mi"'),
        ("{tolerance: {bytes: -1}}", "policy.tolerance"),
        (
            "{tolerance: {bytes: 256m}}",
            'policy.tolerance.bytes: expected bytes as a quantity such as "256Mi", got 256m',
        ),
        ("{tolerance: {per_process: 2000m}}", "policy.tolerance.per_process: expected bytes as a quantity"),
        ("{tolerance: {per_process: 5e-1}}", "policy.tolerance.per_process: expected bytes as a quantity"),
        ("{tolerance: {per_process: '0.5'}}", "policy.tolerance.per_process: expected bytes as a quantity"),
        ("{namespaces: {label: consent}}", "policy.namespaces.label: expected a label such as"),
        (
            "{namespaces: {label: gpusteward.io/mode=yes}}",
            "policy.namespaces.label: expected gpusteward.io/mode=enforce",
        ),
        ("{stop_file: stop}", "policy.stop_file: expected an absolute path, got stop"),
        ("{mps: kill}", "policy.mps: expected notify or evict"),
        ("{protect: {labels: {tier: 1}}}", "policy.protect.labels.tier: expected text, got 1"),
        ("{protect: {labels: [tier]}}", "policy.protect.labels: expected a mapping"),
        ("{protect: {priority_at_least: high}}", "policy.protect.priority_at_least: expected"),
        ("{grase: 2m}", 'policy.grase: unknown key; fix: use "grace", or remove the key'),
    ],
)
def test_what_cannot_be_meant_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    """The error names the file, the key and what was expected, whether the schema or the rules found the fault."""
    with pytest.raises(ConfigError) as raised:
        written(tmp_path, text)
    assert str(raised.value).startswith(f"{tmp_path / 'config.yaml'}: {told}"), raised.value


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{strikes: 1}", "policy.strikes was removed in 0.2: .*; fix: set policy.warn_after and policy.grace, and"),
        ("{strike_half_life: 1h}", "policy.strike_half_life was removed in 0.2: .*; fix: remove the key"),
        (
            "{budgets: {node: 3/10m, workload: 3/24h}}",
            "policy.budgets.workload was removed in 0.2: .*; fix: set policy.budgets.node or policy.budgets.namespace",
        ),
    ],
)
def test_a_key_of_0_1_that_is_gone_names_what_replaces_it(tmp_path: Path, text: str, message: str) -> None:
    """An upgrade with a key that 0.2 has no more fails with the key, the reason and the fix."""
    with pytest.raises(ConfigError, match=message):
        written(tmp_path, text)


def test_a_key_of_0_1_that_is_gone_and_null_is_the_same_as_not_written(tmp_path: Path) -> None:
    """A template that leaves the value empty needs no change."""
    assert written(tmp_path, "{strikes: null, budgets: {workload: null}}").policy == Policy()


def test_what_a_limit_is_read_by_is_part_of_the_build(tmp_path: Path) -> None:
    """Another catalogue, or another choice of it, is a change of ours, which the policy vets; a new process is none."""
    texts = [
        "",
        "limits: {fair_share: on}",
        "limits: {mps_scope: container}",
        "limits: {systems: [hami-nvidia]}",
        "limits: {rows: [{system: hami-nvidia, rows: [{mechanism: resource, key: example.com/gpumem, what: memory}]}]}",
    ]
    builds = [rules_of(written(tmp_path, "{}", text)).build for text in texts]
    assert len(set(builds)) == len(texts)
    assert all(build.startswith(f"{VERSION}+") for build in builds)
    script = "from exporter.config import Arguments, load; from enforcer.runtime.policy_config import rules_of;"
    again = subprocess.run(
        [sys.executable, "-c", f"{script} print(rules_of(load(Arguments())).build)"],
        env={**os.environ, "PYTHONHASHSEED": "7"}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert again.stdout.strip() == builds[0]


def test_only_a_daemon_that_writes_events_waits_for_their_acceptance() -> None:
    """A replay has no server that could accept a warning."""
    config = load(Arguments())
    assert (rules_of(config).confirm, rules_of(config, confirm=True).confirm) == (False, True)


@pytest.mark.parametrize("devices", ["simulated", "recorded:/no/such/file"])
def test_who_has_devices_that_are_not_the_nodes_never_enforces(tmp_path: Path, devices: str) -> None:
    """Pods of this node would be acted on for what others hold; on its own devices the mode is possible."""
    config = written(tmp_path, "{mode: enforce}", f"devices: {devices}")
    assert [key for key, _ in impossible(config)] == ["policy.mode"]
    assert not list(impossible(written(tmp_path, "{mode: enforce}", "devices: nvml")))


def test_a_fence_is_a_matter_of_the_node(tmp_path: Path) -> None:
    """Whether the driver can is asked where it runs; the config may want it anywhere."""
    config = written(tmp_path, "{mode: enforce, ladder: [notify, fence, evict]}", "devices: nvml")
    assert not list(impossible(config))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{journal: state/journal}", "policy.journal: expected an absolute path"),
        ("{admission: off}", "policy.admission: expected required or ignore"),
    ],
)
def test_what_acting_needs_is_refused_with_its_place(tmp_path: Path, text: str, told: str) -> None:
    """The keys that are no rules, too."""
    with pytest.raises(ConfigError) as raised:
        written(tmp_path, text)
    assert told in str(raised.value)


def test_impossible_is_at_least_meaningless(tmp_path: Path) -> None:
    """What `run` refuses beyond `replay`, it refuses for a reason of its own."""
    config = load(Arguments())
    assert list(impossible(config)) == list(meaningless(config)) == []
    assert {field.name for field in fields(Rules)} >= {"mode", "ceilings"}


def test_the_chart_knows_each_action() -> None:
    """The chart's schema cannot import the policy's words: it lists the same ones."""
    actions = tuple(map(str, Rung))
    ladders = re.findall(r'"ladder": \{.*?"enum": (\[[^\]]*\])', SCHEMA.read_text(encoding="utf-8"), re.DOTALL)
    assert [tuple(json.loads(words)) for words in ladders] == [actions]
