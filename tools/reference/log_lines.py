"""
The page of log lines: docs/reference/log-lines.md.

What comes in: the modules of the program, and the lines that the policy's verdicts make. What goes out: the text of
the page.

The rule: names, levels and keys are those of the calls in the code. The meaning of a line is in this module. A line
without a meaning fails, and so does a meaning without a line.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from enforcer.messages.log_lines import lines
from enforcer.policy.history import Opened
from enforcer.policy.vocabulary import Breaker, Mode, Reason, Rung, State
from exporter.model import DeviceKey, GpuUuid

ROOT = Path(__file__).parents[2]
HEAD = """\
# Log lines

Look up a log line of the daemon: what it means, and which keys it has. In a pod each line is a JSON object.
Its name is the key `event`. A key that ends in `_seconds` or `_bytes` has that unit.
`log.level` hides what is below it.

```sh
kubectl -n gpusteward logs ds/gpusteward | grep enforcer.held
```
"""
MEANINGS = {
    "config.refused": "The config file cannot be used. `effect` says what is in force; the mode is `observe` at most.",
    "config.reloaded": "The changed config is in force. `message` names the keys that changed or need a restart.",
    "daemon.started": "The daemon serves its pages at `url`.",
    "daemon.stopped": "The daemon ended. Where an error was the cause, it follows on standard error.",
    "host.pods_cgroup": "The cgroups in which the daemon looks for pods, and how it knows them.",
    "host.pods_cgroup_not_learned": "The daemon's own cgroup names no pod, so it looks for pods in the usual cgroups.",
    "devices.opened": "The sources that `devices: auto` found on this node.",
    "devices.xid": "The driver reported XID errors of a GPU: `new_count` since the last line, `count` since the start.",
    "enforcer.acting": "An action begins. `enforcer.request_result` follows.",
    "enforcer.armed": (
        "All that acting needs is in place. `steps`: those of the ladder that this node can perform. "
        "`unfinished`: actions of an earlier daemon, looked up now."
    ),
    "enforcer.breaker_closed": "A breaker was closed.",
    "enforcer.breaker_not_open": "A person asked to close a breaker that is not open. Nothing follows.",
    "enforcer.breaker_opened": "A [breaker](../operate.md#breakers) opened. A person has to close it.",
    "enforcer.breaker_closing": "A person asked to close a breaker; `detail` says why it had opened.",
    "enforcer.close_request_expired": (
        "A request to close a breaker was left behind more than a minute ago, and is ignored. Nothing follows."
    ),
    "enforcer.request_result": (
        "The request of an action ended; [api.md](../api.md#policy) lists the results. "
        "After `accepted`, `enforcer.effect_result` follows."
    ),
    "enforcer.due": "The grace is over. `enforcer.acting` or `enforcer.held` follows.",
    "enforcer.effect_result": "The effect of an accepted action: `verified` (seen), `lingers`, `stuck` or `unknown`.",
    "enforcer.exempt": "A holder that was over its limit, or unjudged, is protected now.",
    "enforcer.grace": (
        "The grace runs; from mode `warn` on the pod is warned. `prevented` says why no action would follow. "
        "Level info: the holder was due, and the counted time fell."
    ),
    "enforcer.held": (
        "The action is due and does not happen, for this [reason](reasons.md). Level info: the `kind` is `waiting`."
    ),
    "enforcer.insisted": "SIGKILL: a container lived on after SIGTERM. `heard` is what became of the signal.",
    "enforcer.last_look": "The API server did not answer the last look before an action. The action is tried again.",
    "enforcer.levels_not_restored": "The saved counted times are old, or of another boot, version, policy or driver.",
    "enforcer.levels_restored": "The counted times of before the restart count on. `vetted`: the hold-off was over.",
    "enforcer.mode": "The effective mode of the node, at the start and after each change.",
    "enforcer.not_armed": "In mode `enforce`, something that acting needs is missing. Pods that are due are held.",
    "enforcer.ok": "A holder that was warned, protected or unjudged is within its limit.",
    "enforcer.over": "A holder is over its limit, and not yet warned.",
    "enforcer.dry_run_ended": "A dry run ended: `rehearsed` (nothing prevented the action) or `abandoned`.",
    "enforcer.dry_run": "A dry run begins: the action that `enforce` would take.",
    "enforcer.step_missing": "This node cannot perform a step of the ladder. `lasting`: the next step follows instead.",
    "enforcer.stop_ended": "The stop file is gone.",
    "enforcer.stopped": "The stop file is there, or cannot be looked for. No action follows.",
    "enforcer.unfenced": "A fence stands no more, for this `reason`.",
    "enforcer.unjudged": "A holder that was over its limit, or protected, has no valid limit or an unknown usage now.",
    "fence.not_kept": "A fence could not be read, lowered or taken down. It is tried again in the next round.",
    "fence.not_undone": "A fence that was just set wrongly could not be taken down. It may stand on.",
    "first_seen.not_written": "What pods declared first could not be saved. It is tried again.",
    "first_seen.unusable": "The file of first declarations cannot be read. It is written anew.",
    "journal.created": "A new journal was made.",
    "journal.repaired": "A torn or damaged journal was repaired; [journal.md](../journal.md) says what counts then.",
    "journal.not_rewritten": "The journal could not be shortened. It is written on, and shortened later.",
    "kill.not_held": "A container over its limit has no process that the step `kill` can signal safely.",
    "kube.away": "The watch of pods is interrupted: the API server does not answer, or refuses it.",
    "kube.back": "The watch of pods runs again.",
    "kube.credentials_unreadable": "The token or certificate cannot be read. Those of before are used.",
    "kube.owner_refused": "The daemon may not read a pod's controller. The workload is named less exactly.",
    "kube.refused": "The daemon may not read an object of this `kind`.",
    "kubelet.answers": "The kubelet's pod-resources socket answers, for the first time or again.",
    "kubelet.away": "The kubelet's pod-resources socket does not answer.",
    "levels.not_read": "The file of counted times cannot be used. They start at 0.",
    "levels.not_saved": "The file of counted times cannot be written.",
    "library.said": "A library of the program warns.",
    "limits.failed": "A bug: the limits of a pod could not be resolved, and none of them counts. Report it.",
    "limits.invalid": "A declaration that cannot be used. `row` is that of [systems.md](../systems.md).",
    "notify.allowed": "Events in a namespace are allowed again.",
    "notify.away": "The API server does not accept Events. They are kept, and written later.",
    "notify.back": "The API server accepts Events again.",
    "notify.dropped": "Events that are never written: `count` now, `dropped_count` since the start.",
    "notify.forbidden": "The daemon may not write Events in a namespace. It tries again after `retry_seconds`.",
    "sampling.fault": "A source, or part of it, could not be read in this round. Logged once until it is gone.",
    "sampling.fault_cleared": "The fault is gone.",
    "sampling.round": "A round ended.",
    "sampling.round_failed": "A bug: the round was not finished. Report it.",
    "web.config_applied": "The changed web config is in force.",
    "web.config_refused": "The changed web config cannot be used. The last good one stays in force.",
    "web.probes_need_a_certificate": "Client certificates are required without `web.probe_address`: the probes fail.",
    "web.failed": "A bug: a request could not be answered. Report it.",
    "web.no_handshake": "A client did not finish its TLS handshake.",
    "web.no_http": "A client sent something else than HTTP.",
    "web.accept_failed": "No connection can be accepted, mostly for lack of open files.",
}
"""What each line means."""
VARIABLE = {
    "enforcer/runtime/executor.py": ("enforcer.request_result", "enforcer.dry_run_ended"),
}
"""Modules that name the line by a variable, and the names that it has."""
MORE_KEYS = {
    "limits.invalid": ("namespace", "pod", "container", "row", "key", "text", "reason"),
    "enforcer.request_result": ("pod_uid", "container"),
    "enforcer.effect_result": ("pod_uid", "container"),
    "enforcer.dry_run_ended": ("pod_uid", "container"),
    "notify.dropped": ("status", "message", "namespace"),
}
"""Keys that a call takes from elsewhere."""
LEVELS = {"exception": "error"}
CALLED = re.compile(r"\b(log|tell)\b")
"""A name that stands in each call of a logger, as a function, an object or a method."""


def page() -> str:
    """Write the page: a table for each part of the program."""
    found = {name: (level, keys) for name, level, keys in sorted((*called(), *of_the_policy()))}
    if unknown := found.keys() ^ MEANINGS.keys():
        raise ValueError(f"log lines and their meanings differ: {sorted(unknown)}")
    parts, subject = [HEAD], ""
    for name, (level, keys) in found.items():
        if (prefix := name.partition(".")[0]) != subject:
            subject = prefix
            parts.append(f"\n## {subject}\n\n| line | level | means | keys |\n|---|---|---|---|\n")
        parts.append(f"| `{name}` | {level} | {MEANINGS[name]} | {', '.join(f'`{key}`' for key in keys)} |\n")
    return "".join(parts)


def called() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Find each call of a logger: name, level, keys."""
    for folder in ("exporter", "enforcer"):
        for file in sorted((ROOT / folder).rglob("*.py")):
            text = file.read_text(encoding="utf-8")
            if CALLED.search(text) is None:  # six files of seven: the trees of all take a second
                continue
            for node in ast.walk(ast.parse(text)):
                match node:
                    case ast.Call(
                        func=ast.Attribute(value=ast.Name("log"), attr=attr), args=[first, *_], keywords=more
                    ):
                        level = LEVELS.get(attr, attr)
                    case ast.Call(func=ast.Name("tell"), args=[ast.Constant() as first, *_], keywords=more):
                        level = "info, warning"  # a logger's method, chosen by the result
                    case ast.Call(func=ast.Attribute(attr="log"), args=[_, ast.Constant() as first], keywords=more):
                        level = "as the library says"
                    case _:
                        continue
                given = [one.arg for one in more if one.arg and one.arg != "exc_info"]
                for name in _names(first, file.relative_to(ROOT).as_posix()):
                    yield name, level, (*given, *MORE_KEYS.get(name, ()))


def _names(first: ast.expr, file: str) -> tuple[str, ...]:
    return (str(first.value),) if isinstance(first, ast.Constant) else VARIABLE[file]


def of_the_policy() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Make the lines of verdicts with each change of state, and take their names, levels and keys."""
    every: dict[str, tuple[set[str], list[str]]] = {}
    for line in (line for verdict in _verdicts() for line in lines(verdict, None)):
        levels, keys = every.setdefault(line.event, (set(), []))
        levels.add("warning" if line.warning else "info")
        keys += [key for key in line.data if key not in keys]
    for line in lines(_verdict(), _verdict(breakers={Breaker.JOURNAL: Opened(0, "")})):
        every.setdefault(line.event, ({"info"}, list(line.data)))
    for name, (levels, keys) in every.items():
        yield name, ", ".join(sorted(levels)), tuple(keys)


def _verdicts() -> Iterator[Any]:
    device = DeviceKey(GpuUuid("GPU-1"))
    place: dict[str, Any] = {"namespace": "", "pod": "", "pod_uid": "", "container": "", "device": device, "key": None}
    amounts: dict[str, Any] = {"used": 0, "limit": SimpleNamespace(memory=0), "level": 0.0, "capacity": 0.0}
    about: dict[str, Any] = {**place, **amounts, "mode": Mode.ENFORCE, "detail": "", "prevented": Reason.MODE}
    for state in State:
        for was in State:
            for reason in (Reason.BLOCKED, Reason.SPACING):
                after = SimpleNamespace(**about, state=state, reason=reason)
                yield _verdict(changes=[SimpleNamespace(before=was, after=after)])
    for dry in (True, False):
        yield _verdict(action=SimpleNamespace(**about, rung=Rung.EVICT, dry=dry))
    yield _verdict(breakers={Breaker.JOURNAL: Opened(0, "")})


def _verdict(**more: Any) -> Any:
    nothing: dict[str, Any] = {"changes": (), "action": None, "breakers": {}, "standings": (), "mode": Mode.ENFORCE}
    return cast("Any", SimpleNamespace(**{**nothing, **more}))
