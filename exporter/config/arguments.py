"""
The command line, as data.

What comes in: arguments and environment. What goes out: `Arguments`: the config file and the keys that were set besides
it. Each flag has a config key, and says nothing that the file could not say; values are checked where the file's are.

The rule: flag over environment over file over default.
"""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from exporter.devices import NAMES


@dataclass(frozen=True, slots=True)
class Arguments:
    """
    What was said on the command line and in the environment.

    Attributes:
        overrides: dotted config key to its value.
        origins: dotted config key to where it was set, in words for an error message.

    """

    config_file: Path | None = None
    overrides: Mapping[str, str | bool] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


SWITCH = "yes or no"

FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--node-name", "NAME", "name of this node in Kubernetes (NODE_NAME; default: the host name)"),
    ("--node.kubelet-root", "DIR", "the kubelet's folder (default: /var/lib/kubelet)"),
    ("--node.host-root", "DIR", "where the host's root is mounted (default: /host)"),
    ("--sampling.interval", "DURATION", "average time between two rounds, 100ms to 60s (default: 5s)"),
    (
        "--sampling.fast-interval",
        "DURATION",
        "time between two looks at the memory of nearly full shared devices (default: 500ms)",
    ),
    (
        "--devices",
        "SOURCES",
        f"auto (all that the node has; the default), simulated, recorded:FILE, or by commas: {', '.join(NAMES)}",
    ),
    ("--names.source", "SOURCE", "auto, kubernetes, file or none (default: auto)"),
    ("--names.kubeconfig", "FILE", "kubeconfig to reach the API server from outside of a pod"),
    ("--names.file", "FILE", "YAML or JSON file that names pods and containers"),
    ("--limits.systems", "NAMES", "sharing systems to read limits of, by commas (default: auto)"),
    (
        "--limits.mps-scope",
        "SCOPE",
        "report, or container: take the limit of an MPS process for its container's (default: report)",
    ),
    (
        "--limits.first-seen-file",
        "FILE",
        "file in which what pods declared first outlives this daemon (default: remembered in memory)",
    ),
    (
        "--mode",
        "MODE",
        "off, observe, warn, dry-run or enforce (default: observe; gpusteward-exporter only observes)",
    ),
    ("--web.listen-address", "ADDRESS", "address to listen on (default: :9478)"),
    ("--web.config.file", "FILE", "TLS and basic authentication, Prometheus web config format"),
    ("--log.level", "LEVEL", "debug, info, warning or error (default: info)"),
    ("--log.format", "FORMAT", "auto, json or console (default: auto, JSON unless on a terminal)"),
    (
        "--node.trust-pid-namespace",
        SWITCH,
        "believe that /proc numbers processes as the driver does, without proof (default: no)",
    ),
    (
        "--limits.fair-share",
        SWITCH,
        "give a container that declares nothing its share of a replicated device as limit (default: no)",
    ),
    ("--web.api", SWITCH, "serve the node page and /api, besides metrics and probes (default: yes)"),
)
"""Flag, the kind of its value, help."""

OTHER_KEYS = {"--node-name": "node.name", "--mode": "policy.mode", "--web.config.file": "web.config_file"}
"""Keys that are not the flag with underscores."""
NODE_NAME = "NODE_NAME"
CONFIG_FILE = "GPUSTEWARD_CONFIG"
"""The environment variable that names the config file where no `--config` does."""


def key_of(flag: str) -> str:
    """Return the config key of a flag."""
    return OTHER_KEYS.get(flag, flag.removeprefix("--").replace("-", "_"))


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that all daemons share to a parser."""
    text = f"YAML config file; every flag here has a key there (default: {CONFIG_FILE}, else no file)"
    parser.add_argument("--config", metavar="FILE", type=Path, help=text)
    for flag, kind, text in FLAGS:
        if kind == SWITCH:
            parser.add_argument(flag, dest=key_of(flag), action=argparse.BooleanOptionalAction, help=text)
        else:
            parser.add_argument(flag, dest=key_of(flag), metavar=kind, help=text)


def chosen(namespace: argparse.Namespace, environ: Mapping[str, str]) -> Arguments:
    """Take what was set on a parsed command line, and from the environment what the command line leaves open."""
    overrides: dict[str, str | bool] = {}
    origins: dict[str, str] = {}
    if name := environ.get(NODE_NAME):
        overrides["node.name"], origins["node.name"] = name, f"environment variable {NODE_NAME}"
    for flag, *_ in FLAGS:
        key = key_of(flag)
        if (value := getattr(namespace, key)) is not None:
            overrides[key], origins[key] = value, flag
    named = environ.get(CONFIG_FILE)
    return Arguments(namespace.config or (Path(named) if named else None), overrides, origins)


def parse_arguments(
    argv: Sequence[str],
    environ: Mapping[str, str],
    *,
    program: str = "gpusteward-exporter",
    version: str = "",
) -> Arguments:
    """Parse the exporter's command line. Ends the process as argparse does: 0 after --help, 2 on wrong usage."""
    parser = argparse.ArgumentParser(
        prog=program,
        description="Say which container holds how much of which GPU, to Prometheus and to people.",
        allow_abbrev=False,
    )
    if version:
        parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    add_flags(parser)
    return chosen(parser.parse_args(argv), environ)
