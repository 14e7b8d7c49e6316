"""
`gpusteward run` as an operator meets it: a real daemon that judges a node, shows its states everywhere, and stops.

What comes in: films (`daemon.films`) and policies in a hurry. What goes out: what each face of the daemon says.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from daemon.films import ANNA, CALM, INTERVAL, OVER, film
from daemon.running import Daemon, until
from daemon.test_explain_running import POD, explain
from patience import PATIENCE
from scraped import families, series

pytestmark = pytest.mark.daemon

COMMAND = Path(sys.executable).with_name("gpusteward")
INF = float("inf")
HURRIED = {
    "mode": "dry-run",
    "warn_after": "1s",
    "grace": "30s",  # there is no shorter one
    "hold_off": "1s",
    "spacing": "30s",
}
"""The policy of deploy/demo.yaml, in even more of a hurry."""


@pytest.fixture(scope="module")
def always_over(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a film in which anna-notebook is above its limit, from the beginning and for good: it plays in a loop."""
    return film(tmp_path_factory.mktemp("films") / "over.jsonl.gz", (OVER, 2.0))


StartRun = Callable[..., Daemon]


@pytest.fixture
def start_run(tmp_path: Path) -> Iterator[StartRun]:
    """Start `gpusteward run` on a film, with a policy, which is written to `config.yaml`."""
    with ExitStack() as stack:

        def start(devices: Path, *flags: str, env: Mapping[str, str] | None = None, **policy: object) -> Daemon:
            write(tmp_path, devices, **policy)
            words = (COMMAND, "run")
            return stack.enter_context(Daemon(f"--config={tmp_path}/config.yaml", *flags, env=env, command=words))

        yield start


def write(folder: Path, devices: Path, **policy: object) -> None:
    """Write the config as editors and ConfigMaps do: all at once."""
    stop = {"stop_file": str(folder / "stop")}
    config = {
        "devices": f"recorded:{devices}",
        "sampling": {"interval": f"{INTERVAL * 1000:g}ms"},
        "log": {"format": "json"},
        "policy": {**HURRIED, **stop, **policy},
    }
    draft = folder / "draft"
    draft.write_text(json.dumps(config))
    draft.rename(folder / "config.yaml")


def standing(snapshot: Mapping[str, Any]) -> dict[str, Any]:
    """Take where anna-notebook stands."""
    found = [one for one in snapshot["policy"]["standings"] if (one["namespace"], one["pod"], one["container"]) == ANNA]
    (one,) = found
    return dict(one)


def reached(state: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    """Make the condition that anna-notebook is in a state."""

    def look(snapshot: dict[str, Any]) -> dict[str, Any] | None:
        return snapshot if standing(snapshot)["state"] == state else None

    return look


def exported(daemon: Daemon, name: str, wanted: Mapping[tuple[str, ...], float], *labels: str) -> str:
    """Wait until the series of one name that are not 0 are these; return that page, which is rendered after a round."""

    def look() -> str | None:
        page = daemon.get("/metrics")[1]
        return page if {key: value for key, value in series(page, name, *labels).items() if value} == wanted else None

    return until(look, f"{name}: {wanted}", daemon)


def states(daemon: Daemon, wanted: str) -> None:
    """Wait until the metrics have anna-notebook in this state, and in no other."""

    def look() -> bool:
        found = series(daemon.get("/metrics")[1], "container_state", "namespace", "pod", "container", "uuid", "state")
        return [key[4] for key in found if key[:3] == ANNA] == [wanted]

    until(look, f"the state {wanted} of anna-notebook", daemon)


def logged(daemon: Daemon, event: str) -> list[dict[str, Any]]:
    """Take the log lines of one event."""
    found = [json.loads(line) for line in daemon.lines]
    return [line for line in found if line["event"] == event]


def test_an_excess_from_its_beginning_to_its_end(start_run: StartRun, tmp_path: Path) -> None:
    """
    A notebook exceeds its limit, is warned, has its grace, would be evicted, and comes back.

    The snapshot, the metrics, the decisions, the preview, `gpusteward explain` and the log all say the same.
    """
    whole = film(tmp_path / "film.jsonl.gz", (CALM, 8.0), (OVER, 45.0), (CALM, 20.0))
    daemon = start_run(whole, warn_after="5s")  # each state lasts long enough to be met on a machine with other work
    daemon.until(reached("ok"), "the calm beginning")
    page = daemon.page()
    zeros = series(page, "dry_run_actions_total", "action", "namespace")
    assert zeros[("evict", "team-vision")] == 0
    assert zeros[("notify", "team-vision")] == 0
    assert series(page, "actions_total", "action", "namespace").keys() == zeros.keys()
    assert json.loads(daemon.get("/api/v1/decisions")[1])["recent"] == []

    over = standing(daemon.until(reached("over"), "the excess"))
    assert (over["over"], over["limit_bytes"]) == (True, 16 << 30)
    assert over["due_at"] > over["over_since"] + 30, "warn_after and grace are still to come"
    assert over["used_bytes"] > over["limit_bytes"]
    told = daemon.until(reached("grace"), "the grace")
    one = standing(told)
    assert one["next"] == "evict"
    assert told["taken_at"] + 25 < one["due_at"] <= told["taken_at"] + 31
    assert one["over_since"] == pytest.approx(over["over_since"], abs=0.01)
    states(daemon, "grace")
    shown = explain(POD, "--url", daemon.url)
    assert re.search(r"policy:\n    container notebook on GPU-\S+: grace", shown.stdout), shown
    would = json.loads(daemon.get("/api/v1/preview")[1])
    assert [(each["pod"], each["state"]) for each in would["would_act_on"]] == [(ANNA[1], "grace")]

    due = until(lambda: reached("due")(daemon.snapshot()), "the end of the grace", daemon)
    assert standing(due)["over_since"] == pytest.approx(over["over_since"], abs=0.01)
    (decision,) = due["policy"]["recent"]
    assert (decision["kind"], decision["action"], decision["pod"]) == ("dry_run", "evict", ANNA[1])
    assert 35 < decision["at"] - decision["over_since"] < 44
    (same,) = json.loads(daemon.get("/api/v1/decisions")[1])["recent"]
    assert same == {**decision, "result": same["result"]}, "how it ended may have come meanwhile"
    page = exported(daemon, "dry_run_actions_total", {("evict", ANNA[0]): 1}, "action", "namespace")
    assert set(series(page, "actions_total", "action", "namespace").values()) == {0.0}, "without an API server"
    assert series(page, "budget_remaining", "scope") == {("node",): 3, ("namespace",): 2}, "a dry run spends nothing"
    over_for = series(page, "container_over_limit_seconds_total", "namespace", "pod", "container", "uuid")
    (seconds,) = [value for key, value in over_for.items() if key[:3] == ANNA]
    assert 35 < seconds < 49

    daemon.until(reached("held"), "the end of the excess")  # its level falls, at half the speed
    states(daemon, "held")
    mine = [json.loads(line) for line in daemon.lines]
    events = [line["event"] for line in mine if line.get("pod") == ANNA[1]]
    begun = ["enforcer.over", "enforcer.grace", "enforcer.due", "enforcer.dry_run"]
    # Lists and device are read a moment apart: where memory moves fast, a reading may be in doubt, and the next is not.
    assert [event for event in events if event != "enforcer.ok"][:4] == begun
    assert set(events[events.index("enforcer.dry_run") + 1 :]) == {"enforcer.due", "enforcer.held"}
    assert [line["mode"] for line in logged(daemon, "enforcer.mode")] == ["dry-run"]
    assert daemon.stop()[0] == 0


def in_metrics(daemon: Daemon, mode: str) -> None:
    """Wait until the metrics have this mode, and no other."""
    exported(daemon, "enforcement_mode", {(mode,): 1}, "mode")


def in_mode(mode: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda snapshot: snapshot if (snapshot["policy"] or {}).get("mode") == mode else None


@pytest.mark.fault(59)
def test_the_stop_file_stops_at_once_and_its_end_begins_anew(
    start_run: StartRun, tmp_path: Path, always_over: Path
) -> None:
    """With the next rounds the mode is `observe` for all pods; without the file the whole grace begins again."""
    daemon = start_run(always_over)
    daemon.until(lambda s: (standing(s)["due_at"] or INF) < s["taken_at"] + 28, "some grace")
    (tmp_path / "stop").touch()
    stopped = daemon.until(in_mode("observe"), "the stop")
    assert {one["mode"] for one in stopped["policy"]["standings"]} == {"observe"}
    in_metrics(daemon, "observe")
    (said,) = logged(daemon, "enforcer.stopped")
    assert said["file"] == str(tmp_path / "stop")
    before = time.time()
    (tmp_path / "stop").unlink()
    again = daemon.until(in_mode("dry-run"), "the end of the stop")
    one = standing(again)
    assert one["state"] == "grace"
    assert one["due_at"] > before + 29
    assert len(logged(daemon, "enforcer.stop_ended")) == 1
    assert one["over_seconds"] <= 1.5 + again["taken_at"] - before, "back at warn_after"


def test_a_stop_file_that_cannot_be_looked_for_is_one(start_run: StartRun, tmp_path: Path, always_over: Path) -> None:
    """When it is unknown whether the file is there, no pod is acted on. The log says so once, not in each round."""
    (tmp_path / "file").touch()
    daemon = start_run(always_over, stop_file=str(tmp_path / "file" / "stop"))
    daemon.until(lambda s: s["round"] > 4, "some rounds")
    in_metrics(daemon, "observe")
    (said,) = logged(daemon, "enforcer.stopped")
    assert "cannot be looked for" in said["reason"]


@pytest.mark.fault(55)
def test_a_reload_counts_at_once_and_voids_no_time(start_run: StartRun, tmp_path: Path, always_over: Path) -> None:
    """Mode and rules change while it runs; another tolerance leaves the counted time as it is."""
    daemon = start_run(always_over)
    first = standing(daemon.until(reached("grace"), "the grace"))
    write(tmp_path, always_over, tolerance={"ratio": 0.03})
    until(lambda: logged(daemon, "config.reloaded") or None, "the reload", daemon)
    other = daemon.until(lambda s: s if standing(s)["over_seconds"] > first["over_seconds"] + 1 else None, "more time")
    assert standing(other)["over_since"] == pytest.approx(first["over_since"], abs=0.01)
    write(tmp_path, always_over, mode="warn")
    daemon.until(in_mode("warn"), "the other mode")
    in_metrics(daemon, "warn")


def test_another_stop_file_ends_no_stop(start_run: StartRun, tmp_path: Path, always_over: Path) -> None:
    """The folder of the new one is not in the pod before its restart, where a missing folder means "not stopped"."""
    daemon = start_run(always_over)
    (tmp_path / "stop").touch()
    daemon.until(in_mode("observe"), "the stop")
    write(tmp_path, always_over, stop_file=str(tmp_path / "elsewhere" / "stop"))
    (said,) = until(lambda: logged(daemon, "config.reloaded") or None, "the reload", daemon)
    assert "restart the daemon to apply policy.stop_file" in json.dumps(said)
    snapshot = daemon.until(lambda s: s, "a round")
    daemon.until(later(snapshot["round"] + 1), "the next rounds")
    in_metrics(daemon, "observe")
    assert not logged(daemon, "enforcer.stop_ended")


def later(round_: int) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda snapshot: snapshot if snapshot["round"] > round_ else None


def faulty(told: str) -> Callable[[dict[str, Any]], dict[str, Any] | None]:
    return lambda snapshot: snapshot if any(told in one["message"] for one in snapshot["faults"]) else None


@pytest.mark.fault(56)
def test_a_policy_that_cannot_be_meant_stops_everything(start_run: StartRun, tmp_path: Path, always_over: Path) -> None:
    """While the file is broken: mode observe, the reason `config`, a fault with the place; then a whole grace."""
    daemon = start_run(always_over)
    daemon.until(reached("grace"), "the grace")
    for policy, told in (
        ({"laddr": ["notify"]}, 'policy.laddr: unknown key; fix: use "ladder"'),
        ({"tolerance": {"ratio": 1.5}}, "policy.tolerance: expected a ratio from 0 to 1"),
    ):
        write(tmp_path, always_over, **policy)
        broken = daemon.until(faulty(told), "the refusal")
        assert [one["reason"] for one in broken["faults"] if one["source"] == "config"] == ["config_invalid"]
        assert broken["complete"]
        assert broken["policy"]["mode"] == "observe"
        assert broken["policy"]["breakers"] == []
    write(tmp_path, always_over)
    mended = daemon.until(in_mode("dry-run"), "the mended file")
    assert mended["policy"]["breakers"] == []


@pytest.mark.fault(56)
def test_a_daemon_that_starts_with_keys_of_a_newer_version_acts_on_nothing(
    start_run: StartRun, tmp_path: Path, always_over: Path
) -> None:
    """It judges nothing before the file is one that it knows as a whole, whatever mode a flag asks for."""
    daemon = start_run(always_over, "--mode=dry-run", patience="1h", protect={"images": ["train:*"]})
    seen = 0
    for _ in range(3):
        snapshot = daemon.until(later(seen), "the next round")
        assert (snapshot["policy"]["mode"], snapshot["policy"]["breakers"]) == ("observe", [])
        assert [one["reason"] for one in snapshot["faults"] if one["source"] == "config"] == ["config_invalid"]
        seen = snapshot["round"]
    in_metrics(daemon, "observe")
    assert not [line for line in daemon.lines if '"enforcer.warned"' in line or '"enforcer.dry_run"' in line]
    before = time.time()
    write(tmp_path, always_over)
    mended = daemon.until(in_mode("dry-run"), "the mended file")
    assert standing(mended)["over_seconds"] < 2.0 + mended["taken_at"] - before


def ended(
    *words: str, command: Path = COMMAND, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    return subprocess.run(
        [str(command), *words, "--web.listen-address=127.0.0.1:0"],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{mode: enforce}", "policy.mode: expected at most dry-run, because the devices are not those of this node"),
        (
            "{ladder: [evict, notify]}",
            "policy.ladder: expected some of notify, fence, evict, kill, in this order, got [evict, notify]",
        ),
    ],
)
def test_a_policy_that_cannot_be_meant_is_refused_at_the_start(tmp_path: Path, text: str, told: str) -> None:
    """Exit code 2; the file, the key and what was expected, then one fix; nothing starts."""
    file = tmp_path / "config.yaml"
    file.write_text(f"devices: simulated\npolicy: {text}\n")
    found = ended("run", f"--config={file}")
    assert (found.returncode, found.stdout) == (2, "")
    what, fix = found.stderr.removesuffix("\n").replace("\n  ", " ").split("\n")
    assert what.startswith(f"gpusteward run: {file}: ") and told in what, found.stderr
    assert fix.startswith("fix: ") and "docs/reference/config.md" in fix, found.stderr


@pytest.mark.parametrize(
    ("mode", "told"),
    [
        ("enforce", "--mode: expected at most dry-run, because the devices are not those of this node"),
        ("kill", "--mode: expected off or observe or warn or dry-run or enforce, got"),
        ("", "--mode: expected"),
    ],
)
def test_a_mode_of_the_command_line_is_named_as_such(mode: str, told: str) -> None:
    """Exit code 2, and the error names `--mode`. On a simulated node no pod is acted on."""
    found = ended("run", "--devices=simulated", f"--mode={mode}")
    assert found.returncode == 2
    assert told in found.stderr and "Traceback" not in found.stderr, found.stderr


def test_the_daemon_spares_itself(start_run: StartRun, always_over: Path) -> None:
    """The pod that POD_UID names, and the namespace of POD_NAMESPACE, are exempt."""
    uid = standing(start_run(always_over, mode="observe").until(reached("over"), "the excess"))["pod_uid"]
    for env, reason in (({"POD_UID": uid}, "own_pod"), ({"POD_NAMESPACE": ANNA[0]}, "namespace")):
        daemon = start_run(always_over, mode="observe", env=env)
        one = standing(daemon.until(lambda s: s if s["policy"] else None, "a verdict"))
        assert (one["state"], one["reason"]) == ("exempt", reason)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_while_it_loads_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """As the first process of a container it would else not even notice."""
    (tmp_path / "sitecustomize.py").write_text(
        "import os, sys\n"
        "class Signalling:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        f"        if name == 'exporter.daemon': os.kill(os.getpid(), {int(number)})\n"
        "sys.meta_path.insert(0, Signalling())\n"
    )
    found = ended("run", "--devices=simulated", env={"PYTHONPATH": str(tmp_path)})
    assert (found.returncode, found.stderr) == (0, "")


def test_the_exporter_alone_judges_nobody(tmp_path: Path, always_over: Path) -> None:
    """It takes the shared file with its section `policy`, and has none of its metrics, documents and columns."""
    write(tmp_path, always_over, mode="enforce")
    with Daemon(f"--config={tmp_path}/config.yaml") as daemon:
        assert daemon.snapshot()["policy"] is None
        names = {family.name for family in families(daemon.get("/metrics")[1])}
        assert "gpusteward_container_memory_limit_bytes" in names
        policy = (
            "container_state",
            "enforcement_mode",
            "breaker_open",
            "budget_remaining",
            "held",
            "actions",
            "refusals",
        )
        assert not {name for name in names if name.startswith(tuple(f"gpusteward_{word}" for word in policy))}
        for path in ("/api/v1/decisions", "/api/v1/preview"):
            status, body = daemon.get(path)
            assert (status, json.loads(body)) == (404, {"error": "not found"})
        assert "policy:" not in explain(POD, "--url", daemon.url).stdout
        assert not [line for line in daemon.lines if '"event": "enforcer.' in line]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("{mode: on}", "policy.mode: expected off or observe"),
        ("{ladder: notify}", "policy.ladder: expected a list of notify, fence, evict, kill"),
        ("[]", "policy: expected a mapping"),
    ],
)
def test_the_exporter_refuses_wrong_values_in_the_policy(tmp_path: Path, text: str, told: str) -> None:
    """The exporter checks a shared file, too."""
    file = tmp_path / "config.yaml"
    file.write_text(f"devices: simulated\npolicy: {text}\n")
    found = ended(f"--config={file}", command=COMMAND.with_name("gpusteward-exporter"))
    assert found.returncode == 2
    said = " ".join(found.stderr.split())  # it is wrapped, and the path can be long
    assert " ".join(f"{file}: {told}".split()) in said, found.stderr
