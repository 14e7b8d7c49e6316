"""
The page of log lines: docs/reference/log-lines.md.

What comes in: the modules of the program, and the lines that the policy's verdicts make. What goes out: the text of
the page.

The rule: names, levels and keys are those of the calls in the code. What a line means stands here; a line without a
meaning fails, and so does a meaning without a line.
"""

import ast
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
    "config.refused": "The changed config file cannot be used. The last good one stays in force.",
    "config.reloaded": "The config was read anew. The message names the keys that changed, or need a restart.",
    "daemon.started": "The daemon serves its pages at `url`.",
    "daemon.stopped": "The daemon ended in order.",
    "devices.opened": "The sources that this node has.",
    "devices.xid": "The driver reported errors of a GPU: `new` of them since the last line.",
    "enforcer.acting": "An action begins.",
    "enforcer.armed": "All that acting needs is in place.",
    "enforcer.breaker_closed": "A breaker was closed.",
    "enforcer.breaker_not_open": "A request to close a breaker that is not open.",
    "enforcer.breaker_opened": "A [breaker](../operate.md#breakers) opened. A person has to close it.",
    "enforcer.breaker_closing": "A person closes a breaker.",
    "enforcer.concluded": "The request of an action ended; [api.md](../api.md#policy) lists the results.",
    "enforcer.due": "The grace is over, and the action follows.",
    "enforcer.ended": "The end of an action that was accepted: `verified`, `lingers` or `stuck`.",
    "enforcer.exempt": "A holder that was over its limit is protected now.",
    "enforcer.grace": "The pod is warned, and its grace runs. `prevented` says why no action would follow.",
    "enforcer.held": "The action is due and does not happen, for this [reason](reasons.md).",
    "enforcer.insisted": "A container lived on after SIGTERM and its grace: SIGKILL.",
    "enforcer.last_look": "The API server did not answer the last look before an action. The action is tried again.",
    "enforcer.levels_not_restored": "The saved counted times do not fit this version, driver or boot. They start at 0.",
    "enforcer.levels_restored": "The counted times of before the restart count on.",
    "enforcer.mode": "The effective mode of the node changed.",
    "enforcer.not_armed": "Something that acting needs is missing. Pods that are due are held.",
    "enforcer.ok": "A holder is within its limit again.",
    "enforcer.over": "A holder is over its limit, and not yet warned.",
    "enforcer.dry_run_ended": "A dry run ended: `rehearsed` (nothing prevented the action) or `abandoned`.",
    "enforcer.dry_run": "A dry run begins: the action that `enforce` would take.",
    "enforcer.step_missing": "This node cannot perform a step of the ladder.",
    "enforcer.stop_ended": "The stop file is gone.",
    "enforcer.stopped": "The stop file is there, or cannot be looked for. No action follows.",
    "enforcer.unfenced": "A fence was taken down.",
    "enforcer.unjudged": "The limit or the usage of a holder is unknown now.",
    "fence.not_kept": "A fence could not be moved to the present usage.",
    "fence.not_undone": "A fence could not be taken down.",
    "first_seen.not_written": "What pods declared first could not be saved.",
    "first_seen.unusable": "The file of first declarations cannot be read. It is written anew.",
    "journal.created": "A new journal was made.",
    "journal.repaired": "A torn or damaged journal was repaired; [journal.md](../journal.md) says what counts then.",
    "journal.not_rewritten": "The journal could not be shortened. It goes on as it is.",
    "kill.not_held": "A container over its limit has no process that the step `kill` can signal safely.",
    "kube.away": "The API server does not answer the watch of pods.",
    "kube.back": "The API server answers again.",
    "kube.credentials_unreadable": "The token or certificate cannot be read. Those of before are used.",
    "kube.owner_refused": "The daemon may not read a pod's controller. The workload is named less exactly.",
    "kube.refused": "The daemon may not read an object.",
    "kubelet.answers": "The kubelet's pod-resources socket answers.",
    "kubelet.away": "The kubelet's pod-resources socket does not answer.",
    "levels.not_read": "The file of counted times cannot be used. They start at 0.",
    "levels.not_saved": "The file of counted times cannot be written.",
    "library.said": "A library of the program warns.",
    "limits.failed": "A bug: the limits of a pod could not be found. Report it.",
    "limits.invalid": "A declaration that cannot be used. `row` is that of [systems.md](../systems.md).",
    "notify.allowed": "Events in a namespace are allowed again.",
    "notify.away": "The API server does not accept Events.",
    "notify.back": "The API server accepts Events again.",
    "notify.dropped": "Events that will not be written, and why.",
    "notify.forbidden": "The daemon may not write Events in a namespace.",
    "sampling.fault": "A source, or part of it, could not be read in this round. Logged once until it changes.",
    "sampling.fault_cleared": "The fault is gone.",
    "sampling.round": "A round ended.",
    "sampling.round_failed": "A bug: the round was not finished. Report it.",
    "web.config_applied": "The changed web config is in force.",
    "web.config_refused": "The changed web config cannot be used. The last good one stays in force.",
    "web.failed": "A bug: a request could not be answered. Report it.",
    "web.no_handshake": "A client did not finish its TLS handshake.",
    "web.no_http": "A client sent something else than HTTP.",
    "web.accept_failed": "No connection can be accepted, mostly for lack of open files.",
}
"""What each line means."""
VARIABLE = {
    "enforcer/runtime/executor.py": ("enforcer.concluded", "enforcer.dry_run_ended"),
}
"""Modules that name the line by a variable, and the names that it has."""
MORE_KEYS = {
    "limits.invalid": ("namespace", "pod", "container", "row", "key", "text", "reason"),
    "enforcer.concluded": ("pod_uid", "container"),
    "enforcer.ended": ("pod_uid", "container"),
    "enforcer.dry_run_ended": ("pod_uid", "container"),
    "notify.dropped": ("status", "message", "namespace"),
}
"""Keys that a call takes from elsewhere."""
LEVELS = {"exception": "error"}


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
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
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
