"""
The page of the config file: docs/reference/config.md.

What comes in: the schema with its defaults, the flags. What goes out: the text of the page.

The rule: keys, types and defaults are those of the schema, and a key that has a flag has the flag's help. The meaning
of a key without a flag is in this module, and such a key without a meaning fails.
"""

import re
from collections.abc import Iterator
from typing import Any, get_args, get_type_hints

import msgspec
from msgspec import inspect

from exporter.config.arguments import FLAGS, key_of
from exporter.config.schema import FASTEST, FROM_THE_START, INTERVAL, LIVE, Config
from exporter.config.values import Bytes, Duration

HEAD = """\
# The config file

Look up a key, its default, and what it takes. The file is YAML: `--config`, or the variable `GPUSTEWARD_CONFIG`.
With the chart it is the value `config`. How to check, reload and extend it: [configuration.md](../configuration.md).

A duration is written as `500ms`, `5s`, `2m` or `1h`, bytes as a quantity such as `256Mi`.
A rate is written as `3/10m`: three in ten minutes.
*Live*: a change is applied while the daemon runs. Each other key needs a restart.
"""
MEANINGS = {
    "limits.rows": "your own part of the [catalogue](../configuration.md#limits-of-your-own) of declarations",
    "policy.trigger": "`limit`: the limit alone counts; `contended`: a neighbour must be short of memory, too",
    "policy.tolerance.ratio": "part of the limit by which it may be exceeded; the larger of this and `bytes` counts",
    "policy.tolerance.bytes": "bytes by which a limit may be exceeded, at most a tenth of the limit",
    "policy.tolerance.per_process": "bytes for each [CUDA context](../policy.md#cuda-contexts) that the limit excludes",
    "policy.warn_after": "time over the limit before the pod is warned",
    "policy.grace": "time over the limit between warning and first action; three readings at least",
    "policy.ladder": "the [steps](../actions.md), the gentlest first; each once, at least one",
    "policy.when_blocked": "what follows a blocked eviction; `kill` exactly where the ladder has `evict` and `kill`",
    "policy.mps": "what an [MPS client](../policy.md#mps)'s excess leads to at most",
    "policy.namespaces.label": "label by which a namespace [consents](../policy.md#consent) to evictions and kills",
    "policy.budgets.node": "actions on the node per time; 0 actions: none",
    "policy.budgets.namespace": "actions in a namespace per time",
    "policy.protect.namespaces": "namespaces whose pods are never acted on; `*` is any text",
    "policy.protect.priority_at_least": "pods of this priority or above, or of a `system-` class, are never acted on",
    "policy.protect.labels": "pods with one of these labels are never acted on",
    "policy.protect.daemon_sets": "whether pods of DaemonSets are never acted on",
    "policy.protect.bare_pods": "whether pods without a controller are never acted on",
    "policy.protect.third_party": "whether `safe-to-evict: false` holds actions, where exemptions are allowed",
    "policy.spacing": "time between two actions on the node; one `sampling.interval` or more",
    "policy.hold_off": "time without actions after a first start, another version, other rules or another driver",
    "policy.stop_file": "file on the node that [stops](../operate.md#stop-all-actions) all actions while it is there",
    "policy.journal": "the [journal](../journal.md) of mode `enforce`; null: `/var/lib/gpusteward/journal`",
    "policy.trusted_vendors": "vendors whose devices may be acted on",
    "policy.admission": "whether both policies of `deploy/enforcer/admission.yaml` must be in force to act",
}
"""What each key without a flag means."""
TAKES = {
    "sampling.interval": f"{INTERVAL[0]} to {INTERVAL[1]}",
    "sampling.fast_interval": f"{FASTEST} to `sampling.interval`",
    "policy.warn_after": "0s to 1h",
    "policy.grace": "0s to 1h",
    "policy.tolerance.ratio": "0 to 1",
    "policy.stop_file": "an absolute path",
    "policy.journal": "an absolute path, or null",
    "node.kubelet_root": "an absolute path",
    "node.host_root": "an absolute path",
    "node.pods_cgroup": "an absolute path, or null",
}
"""The values of a key whose type says less."""


def page() -> str:
    """Write the page: a table for each section."""
    flags = {key_of(flag): (flag, text) for flag, _, text in FLAGS}
    parts, section = [HEAD], ""
    for key, field, words in listed():
        if (name := key.partition(".")[0]) != section:
            section = name
            head = "| key | default | takes | flag | live | means |\n|---|---|---|---|---|---|\n"
            parts.append(f"\n## {section}\n\n{head}")
        flag, text = flags.get(key, ("", ""))
        meaning = re.sub(r" \(default: .*?\)$", "", text) or MEANINGS[key]
        live = "yes" if (key in LIVE or section in LIVE) and key not in FROM_THE_START else ""
        takes = TAKES.get(key) or ", ".join(f"`{word}`" for word in words) or _takes(field.type)
        cells = (f"`{key}`", _default(field), takes, f"`{flag}`" if flag else "", live, meaning)
        parts.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n")
    return "".join(parts)


def listed() -> Iterator[tuple[str, inspect.Field, tuple[str, ...]]]:
    """List each key with dots, its field, and the words that it takes in the schema's order."""
    described = inspect.type_info(Config)
    if isinstance(described, inspect.StructType):
        yield from _below(described, "")


def _below(struct: inspect.StructType, before: str) -> Iterator[tuple[str, inspect.Field, tuple[str, ...]]]:
    hints = get_type_hints(struct.cls)
    for field in struct.fields:
        key = f"{before}{field.encode_name}"
        if isinstance(field.type, inspect.StructType):
            yield from _below(field.type, f"{key}.")
        else:
            yield key, field, get_args(hints[field.name]) if isinstance(field.type, inspect.LiteralType) else ()


def _default(field: inspect.Field) -> str:
    if field.required:
        return "the host name"
    value = field.default if field.default is not msgspec.NODEFAULT else field.default_factory()
    return f"`{_written(value)}`"


def _written(value: Any) -> str:
    """Write a default as the file has it."""
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    if isinstance(value, Bytes):
        return f"{value >> 20}Mi" if value % 2**20 == 0 else str(int(value))
    if isinstance(value, list):
        return f"[{', '.join(map(str, value))}]"
    return "{}" if value == {} else str(value)


def _takes(kind: inspect.Type) -> str:
    match kind:
        case inspect.Metadata(type=inner, extra_json_schema={"description": str(text)}):
            return _quoted(text) if text else _takes(inner)
        case inspect.Metadata(type=inner):
            return _takes(inner)
        case inspect.UnionType(types=types):
            return " or ".join(_takes(one) for one in types if not isinstance(one, inspect.NoneType)) + ", or null"
        case inspect.CustomType(cls=cls) if cls is Duration:
            return "a duration"
        case inspect.CustomType():
            return "a path"
    names: dict[type[inspect.Type], str] = {
        inspect.BoolType: "`true`, `false`",
        inspect.IntType: "an integer",
        inspect.FloatType: "a number",
        inspect.DictType: "labels, as `key: value`",
        inspect.StrType: "text",
    }
    return names[type(kind)]


def _quoted(text: str) -> str:
    linked = re.sub(r"docs/([\w-]+\.md)", r"[\1](../\1)", text)
    return re.sub(r'"([^"]+)"', r"`\1`", linked)
