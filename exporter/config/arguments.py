"""
The command line, as data.

What comes in: arguments and environment. What goes out: `Arguments`: the config file and the keys that were set
elsewhere. Each flag has a config key, and takes no value that the file does not take. Values are checked with those of
the file.

The rule: flag over environment over file over default.
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NoReturn

from exporter.base.problem import Problem, lines
from exporter.devices import NAMES
from exporter.model import COLLECTORS


@dataclass(frozen=True, slots=True)
class Arguments:
    """
    The settings of the command line and the environment.

    Attributes:
        overrides: dotted config key to its value.
        origins: dotted config key to the flag or variable that set it, for error messages.
    """

    config_file: Path | None = None
    overrides: Mapping[str, str | bool] = field(default_factory=dict)
    origins: Mapping[str, str] = field(default_factory=dict)


class Parser(argparse.ArgumentParser):
    """A parser whose errors name the fix. Its sub-commands get parsers of this kind, too."""

    def error(self, message: str) -> NoReturn:
        """Print what is wrong, and end the process with exit code 2."""
        fix = f"see {self.prog} --help" + (f", or {self.prog} COMMAND --help" if self._subparsers else "")
        self.exit(2, "".join(f"{line}\n" for line in lines(self.prog, Problem(message, fix=fix))))


SWITCH = "yes or no"

FLAGS: tuple[tuple[str, str, str], ...] = (
    ("--node-name", "NAME", "name of this node in Kubernetes (default: the variable NODE_NAME, else the host name)"),
    ("--node.kubelet-root", "DIR", "the kubelet's folder (default: /var/lib/kubelet)"),
    ("--node.host-root", "DIR", "where the root of the host is mounted (default: /host)"),
    (
        "--node.pods-cgroup",
        "PATH",
        "cgroup below which the kubelet keeps the pods (default: learned from the daemon's own pod)",
    ),
    ("--sampling.interval", "DURATION", "average time between two rounds, from 100ms to 60s (default: 5s)"),
    (
        "--sampling.fast-interval",
        "DURATION",
        "time between two extra readings of the memory of nearly full shared devices (default: 500ms)",
    ),
    (
        "--devices",
        "SOURCES",
        f"auto (all sources of the node), simulated, recorded:FILE, or some of {','.join(NAMES)} (default: auto)",
    ),
    ("--names.source", "SOURCE", "source of the names of pods: auto, kubernetes, file or none (default: auto)"),
    ("--names.kubeconfig", "FILE", "kubeconfig for the API server, for a daemon that does not run in a pod"),
    ("--names.file", "FILE", "YAML or JSON file with the names of pods and containers"),
    (
        "--limits.systems",
        "NAMES",
        "sharing systems whose limits are read, with commas between them (default: auto, all that are in use)",
    ),
    (
        "--limits.mps-scope",
        "SCOPE",
        "report: export the limit of an MPS process; container: use it as the limit of its container (default: report)",
    ),
    (
        "--limits.first-seen-file",
        "FILE",
        "file that keeps the first declaration of each pod over a restart of the daemon (default: kept in memory)",
    ),
    ("--mode", "MODE", "off, observe, warn, dry-run or enforce (default: observe)"),
    (
        "--metrics.workload-labels",
        "NAMES",
        "plain: labels namespace, pod, container; exported: exported_namespace and so on (default: plain)",
    ),
    ("--web.listen-address", "ADDRESS", "address to listen on (default: :9478)"),
    (
        "--web.probe-address",
        "ADDRESS",
        "second address, for the probes alone, in plain HTTP (default: none; the probes are at the first one)",
    ),
    ("--web.config.file", "FILE", "TLS and basic authentication, in the format of Prometheus' web config"),
    ("--log.level", "LEVEL", "debug, info, warning or error (default: info)"),
    ("--log.format", "FORMAT", "auto, json or console (default: auto: console on a terminal, else json)"),
    (
        "--node.trust-pid-namespace",
        SWITCH,
        "accept without proof that /proc and the driver use the same process numbers (default: no)",
    ),
    (
        "--limits.fair-share",
        SWITCH,
        "limit a container without a declaration to its share of a replicated device (default: no)",
    ),
    *(
        (f"--collector.{name.replace('_', '-')}", SWITCH, f"read {what} (default: yes)")
        for name, what in COLLECTORS.items()
    ),
    ("--web.api", SWITCH, "serve the node page and /api as well as metrics and probes (default: yes)"),
)
"""Flag, the kind of its value, help."""
ALL = frozenset(flag for flag, *_ in FLAGS)

OTHER_KEYS = {"--node-name": "node.name", "--mode": "policy.mode", "--web.config.file": "web.config_file"}
"""Config keys that are not simply the flag with underscores."""
NODE_NAME = "NODE_NAME"
CONFIG_FILE = "GPUSTEWARD_CONFIG"
"""The environment variable that names the config file when `--config` is missing."""


def key_of(flag: str) -> str:
    """Return the config key of a flag."""
    return OTHER_KEYS.get(flag, flag.removeprefix("--").replace("-", "_"))


def add_flags(parser: argparse.ArgumentParser, used: Collection[str] = ALL) -> None:
    """
    Add the daemon's flags to a parser. Its help lists those that are `used`.

    All other flags are accepted, too, so that a command accepts the daemon's command line unchanged.
    """
    text = f"YAML config file; each flag has a key in it (default: the variable {CONFIG_FILE}, else no file)"
    parser.add_argument("--config", metavar="FILE", type=Path, help=text)
    for flag, kind, text in FLAGS:
        shown = text if flag in used else argparse.SUPPRESS
        if kind == SWITCH:
            parser.add_argument(flag, dest=key_of(flag), action=argparse.BooleanOptionalAction, help=shown)
        else:
            parser.add_argument(flag, dest=key_of(flag), metavar=kind, help=shown)


def chosen(namespace: argparse.Namespace, environ: Mapping[str, str]) -> Arguments:
    """Collect the settings of a parsed command line; the environment fills in what is missing there."""
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
    return chosen(exporter_parser(program, version).parse_args(argv), environ)


def exporter_parser(program: str, version: str) -> argparse.ArgumentParser:
    """Make the parser of `gpusteward-exporter`."""
    parser = Parser(
        prog=program,
        usage="%(prog)s [FLAGS]",
        description="Export the GPU memory and SM usage of each container on this node, for Prometheus and as a page.",
        epilog=f"example: {program} --config /etc/gpusteward/config.yaml --node-name gpu-node-1",
        allow_abbrev=False,
    )
    if version:
        parser.add_argument("--version", action="version", version=f"%(prog)s {version}")
    add_flags(parser, ALL - {"--mode"})  # it only observes
    return parser
