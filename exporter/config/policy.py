"""
The section `policy`: the operator's choice of actions for usage above a limit.

What comes in: nothing. What goes out: frozen structs with the policy's defaults, which are written nowhere else; the
removed keys of earlier versions.

The rule: both daemons check the section, so that each of them finds a typing error. Only the enforcer interprets it.
"""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, field

from exporter.config.values import Bytes, Duration, Rate
from exporter.config.yaml_text import ConfigError
from exporter.model import Tolerance as AllowedExcess
from exporter.model.ladder import Rung
from exporter.model.vendors import TRUSTED, VENDORS

_Duration = Annotated[Duration, Meta(description='a duration such as "2m"')]
_Rate = Annotated[Rate, Meta(description='a number of actions and a duration such as "3/10m"')]
Mode = Literal["off", "observe", "warn", "dry-run", "enforce"]
Vendor = Annotated[str, Meta(pattern=f"^({'|'.join(vendor.name for vendor in VENDORS if vendor.memory_by_process)})$")]
"""The vendors whose memory is known by process: only their usage can be above a limit."""


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A part of the section: frozen, and closed for unknown keys."""


_Bytes = Annotated[Bytes, Meta(description='bytes as a quantity such as "256Mi"')]


class Tolerance(Part, frozen=True):
    """
    The excess over a limit that is allowed.

    It is the larger of `ratio` and `bytes`, with `bytes` at most a tenth of the limit; and `per_process` for each CUDA
    context.
    """

    ratio: float = 0.02
    bytes: _Bytes = Bytes(256 * 2**20)
    per_process: _Bytes = Bytes(512 * 2**20)


class Namespaces(Part, frozen=True):
    """The label, `key=value`, by which a namespace consents to evictions and kills."""

    label: Annotated[
        str, Meta(pattern=r"^[^=\s]+=[^=\s]*$", description='a label such as "gpusteward.io/mode=enforce"')
    ] = "gpusteward.io/mode=enforce"


class Budgets(Part, frozen=True):
    """The number of actions per time, for the node and for each namespace."""

    node: _Rate = Rate("3/10m")
    namespace: _Rate = Rate("2/10m")


class Protect(Part, frozen=True):
    """The pods that are never acted on. `third_party` counts where a namespace allows its pods to be exempt."""

    namespaces: Annotated[list[str], Meta(description="a list of names, * for any text")] = field(
        default_factory=lambda: ["kube-*", "gpu-operator"]
    )
    priority_at_least: int = 2_000_000_000
    labels: dict[str, str] = field(default_factory=dict)
    daemon_sets: bool = False
    bare_pods: bool = False
    third_party: bool = True


class Policy(Part, frozen=True):
    """The whole section; tools/reference/config.py says what each key does."""

    mode: Mode = "observe"
    trigger: Literal["contended", "limit"] = "limit"
    tolerance: Tolerance = field(default_factory=Tolerance)
    warn_after: _Duration = Duration(15)
    grace: _Duration = Duration(120)
    ladder: Annotated[list[Rung], Meta(description=f"a list of {', '.join(Rung)}")] = field(
        default_factory=lambda: [Rung.NOTIFY, Rung.EVICT]
    )
    when_blocked: Literal["hold", "kill"] = "hold"
    mps: Literal["notify", "evict"] = "notify"
    namespaces: Namespaces = field(default_factory=Namespaces)
    budgets: Budgets = field(default_factory=Budgets)
    protect: Protect = field(default_factory=Protect)
    spacing: _Duration = Duration(60)
    hold_off: _Duration = Duration(300)
    stop_file: Path = Path("/run/gpusteward/stop")
    journal: Path | None = None
    trusted_vendors: Annotated[list[Vendor], Meta(description="a list of vendors of docs/devices.md")] = field(
        default_factory=lambda: sorted(TRUSTED)
    )
    admission: Literal["required", "ignore"] = "required"


def tolerance_of(policy: Policy) -> AllowedExcess:
    """Return the allowed excess as the model's type."""
    tolerance = policy.tolerance
    return AllowedExcess(tolerance.ratio, int(tolerance.bytes), int(tolerance.per_process))


REMOVED = {
    "policy.strikes": (
        "an action now needs time over the limit in total, not a number of excesses",
        "set policy.warn_after and policy.grace, and remove the key",
    ),
    "policy.strike_half_life": (
        "time within the limit now lowers the time that counts, at half the speed",
        "remove the key",
    ),
    "policy.budgets.workload": (
        "a workload now has a fixed back-off of 1 to 10 minutes between actions",
        "set policy.budgets.node or policy.budgets.namespace, and remove the key",
    ),
}
"""Keys of 0.1 that were removed in 0.2: the reason, and the fix of the file."""


def removed(key: str, source: str = "") -> ConfigError:
    """Make the error for a key that was removed, with its fix."""
    cause, fix = REMOVED[key]
    return ConfigError(
        f"{source}: {key} was removed in 0.2" if source else f"{key} was removed in 0.2", cause=cause, fix=fix
    )
