"""
The keys of the config file, their defaults, and their valid ranges.

What comes in: nothing. What goes out: frozen structs, one per section. `problems` finds values that have the right form
and are impossible. `changes` lists what a reload can apply while the daemon runs. Durations are floats in seconds here.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, field

from exporter.config.policy import Policy
from exporter.config.values import Devices, Duration, ListenAddress, Systems
from exporter.devices import NAMES
from exporter.model import Collector, Off

_Duration = Annotated[Duration, Meta(description='a duration such as "5s"')]

INTERVAL = (Duration(0.1), Duration(60))
"""Below 100 ms the process lists cost more than they are worth; above a minute series go stale between two scrapes."""
FASTEST = Duration(0.05)
MAX_NAME = 253
DEVICES = f"auto, simulated, recorded:FILE, or sources with commas between them: {', '.join(NAMES)}"


class Section(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One section of the file: frozen, and closed for unknown keys."""


class Node(Section, frozen=True):
    """
    The node's name, and the place of its files.

    `pods_cgroup` is the cgroup below which the kubelet keeps its pods. None: learned from the daemon's own pod.
    """

    name: Annotated[str, Meta(description="a node name, as text")]
    kubelet_root: Path = Path("/var/lib/kubelet")
    host_root: Path = Path("/host")
    pods_cgroup: Path | None = None
    trust_pid_namespace: bool = False


class Sampling(Section, frozen=True):
    """How often the node is read: everything each `interval`, the memory of watched devices each `fast_interval`."""

    interval: _Duration = Duration(5)
    fast_interval: _Duration = Duration(0.5)


class Collecting(Section, frozen=True):
    """The figures to read besides devices, memory and processes; `COLLECTORS` says what each of them is."""

    utilization: bool = True
    process_utilization: bool = True
    gpm: bool = True
    power: bool = True
    temperature: bool = True
    clocks: bool = True
    throttling: bool = True
    ecc: bool = True
    hardware: bool = True
    xid: bool = True


def switched_off(collecting: Collecting) -> Off:
    """Name the collectors that are false."""
    return frozenset(Collector(name) for name, on in msgspec.structs.asdict(collecting).items() if not on)


class Names(Section, frozen=True):
    """
    The source of the names of pods and containers.

    `auto`: the file if there is one; else Kubernetes in a pod or with a kubeconfig; else no source.
    """

    source: Literal["auto", "kubernetes", "file", "none"] = "auto"
    file: Path | None = None
    kubeconfig: Path | None = None


def source_of_names(names: Names, *, in_a_pod: bool) -> Literal["kubernetes", "file", "none"]:
    """
    Resolve `auto`; any other value is kept.

    `in_a_pod`: Kubernetes gave this process the address of its API server.
    """
    if names.source != "auto":
        return names.source
    if names.file is not None:
        return "file"
    return "kubernetes" if in_a_pod or names.kubeconfig is not None else "none"


class Limits(Section, frozen=True):
    """
    The sources of limits, and their interpretation.

    Attributes:
        fair_share: a container that declares nothing may hold its share of a replicated device.
        mps_scope: whether a process's limit (MPS) is only reported, or counts as the container's.
        first_seen_file: the file that keeps pods' first declarations over a restart; None keeps them in memory.
        rows: the operator's own part of the catalogue, in the form of the package's (exporter/limits/catalogue).
    """

    systems: Annotated[Systems, Meta(description="auto, or a list of systems of docs/systems.md")] = Systems("auto")
    fair_share: bool = False
    mps_scope: Literal["report", "container"] = "report"
    first_seen_file: Path | None = None
    rows: Annotated[list[Any], Meta(description="a list of systems with rows")] = field(default_factory=list)


_Address = Annotated[
    ListenAddress,
    Meta(description='an address such as ":9478", "127.0.0.1:9478" or "[::1]:9478" (without a zone)'),
]


class Metrics(Section, frozen=True):
    """
    The names of the labels that tell the workload.

    `plain`: namespace, pod, container. `exported`: the same behind `exported_`, for a Prometheus that overrides these.
    """

    workload_labels: Literal["plain", "exported"] = "plain"


class Web(Section, frozen=True):
    """
    The HTTP server.

    Attributes:
        config_file: Prometheus' web config.
        api: false leaves metrics and probes only.
        probe_address: a second address for the probes alone, in plain HTTP; where a client certificate is required.

    """

    listen_address: _Address = ListenAddress(":9478")
    probe_address: _Address | None = None
    config_file: Path | None = None
    api: bool = True


class Log(Section, frozen=True):
    """The level and the format of the log; `auto` is JSON unless on a terminal."""

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "json", "console"] = "auto"


class Config(Section, frozen=True):
    """All that an operator can set."""

    node: Node
    sampling: Sampling = field(default_factory=Sampling)
    devices: Annotated[Devices, Meta(description=DEVICES)] = Devices("auto")
    collector: Collecting = field(default_factory=Collecting)
    names: Names = field(default_factory=Names)
    limits: Limits = field(default_factory=Limits)
    policy: Policy = field(default_factory=Policy)
    metrics: Metrics = field(default_factory=Metrics)
    web: Web = field(default_factory=Web)
    log: Log = field(default_factory=Log)


PATHS = ("names.file", "names.kubeconfig", "limits.first_seen_file", "web.config_file")
"""Keys with paths; a relative path in the file starts at the file's folder. The node's roots are absolute."""

LIVE = frozenset({"sampling.interval", "sampling.fast_interval", "names.file", "policy", "log.level"})
"""Keys that a reload applies at once; every other key needs a restart."""
FROM_THE_START = ("policy.stop_file", "policy.journal", "policy.admission")
"""
Keys of a live section that need a restart all the same. The daemon opens the journal and proves the admission policies
at its start. In a running pod the folder of another stop file is not mounted: the file would count as absent.
"""


def problems(config: Config) -> Iterator[tuple[str, str]]:
    """Name each key whose value has the right form and is impossible, with what was expected instead."""
    lowest, highest = INTERVAL
    sampling = config.sampling
    if not lowest <= sampling.interval <= highest:
        yield "sampling.interval", f"a duration from {lowest} to {highest}"
    elif not FASTEST <= sampling.fast_interval <= sampling.interval:
        yield "sampling.fast_interval", f"a duration from {FASTEST} to sampling.interval, which is {sampling.interval}"
    if config.names.source == "file" and config.names.file is None:
        yield "names.file", "a file, because names.source is file"
    if config.devices.recording is not None and config.limits.first_seen_file is not None:
        yield "limits.first_seen_file", "no file, because devices plays a recording, and the file is this node's"
    probes = config.web.probe_address
    if probes is not None and probes.port and probes.port == config.web.listen_address.port:
        yield "web.probe_address", f"another port than web.listen_address has, which is {config.web.listen_address}"
    name = config.node.name
    if not 0 < len(name) <= MAX_NAME or not name.isprintable() or " " in name:
        yield "node.name", f"a node name of 1 to {MAX_NAME} characters without spaces"
    absolute = {
        "node.kubelet_root": config.node.kubelet_root,
        "node.host_root": config.node.host_root,
        "policy.stop_file": config.policy.stop_file,
        "policy.journal": config.policy.journal,
    }
    for key, path in absolute.items():
        if path is not None and not path.is_absolute():
            yield key, "an absolute path"
    if (cgroup := config.node.pods_cgroup) is not None and (
        not cgroup.is_absolute() or cgroup == Path("/") or ".." in cgroup.parts
    ):
        yield "node.pods_cgroup", "the absolute path of a cgroup below the root, such as /kubepods.slice"


def found_at(config: Config, key: str) -> object:
    """Return the value at a dotted key, in plain data."""
    value: Any = config
    for part in key.split("."):
        value = getattr(value, part)
    return msgspec.to_builtins(value, enc_hook=str) if isinstance(value, msgspec.Struct) else value


def replaced(config: Config, key: str, value: object) -> Config:
    """Put another value at a key: a section, or a section and a key in it with a dot between."""
    section, _, name = key.partition(".")
    if name:
        value = msgspec.structs.replace(getattr(config, section), **{name: value})
    return msgspec.structs.replace(config, **{section: value})


def settings(config: Config) -> dict[str, object]:
    """Flatten a config into dotted keys."""
    flat: dict[str, object] = {}
    for section, value in msgspec.structs.asdict(config).items():
        if isinstance(value, Section):
            flat |= {f"{section}.{key}": setting for key, setting in msgspec.structs.asdict(value).items()}
        else:
            flat[section] = value
    return flat


def changes(running: Config, wanted: Config) -> tuple[Config, tuple[str, ...], tuple[str, ...]]:
    """
    Compare the config in force with the one in the file.

    Returns:
        The next config in force: the live keys of `wanted`, all others of `running`. Then the keys that this applies,
        and the keys that wait for a restart.

    """
    fixed = tuple(key for key in FROM_THE_START if found_at(running, key) != found_at(wanted, key))
    opened = {key.partition(".")[2]: found_at(running, key) for key in fixed}
    wanted = msgspec.structs.replace(wanted, policy=msgspec.structs.replace(wanted.policy, **opened))
    before, after = settings(running), settings(wanted)
    different = [key for key in after if before[key] != after[key]]
    live = tuple(key for key in different if key in LIVE)
    merged = running
    for key in live:
        merged = replaced(merged, key, after[key])
    return merged, live, (*(key for key in different if key not in LIVE), *fixed)
