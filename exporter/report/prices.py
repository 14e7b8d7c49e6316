"""
The file of prices.

What comes in: a path. What goes out: `Prices`, or `ConfigError` with the key, what was expected and what was found.

The rule: a price is of an hour of a whole GPU, per model as `gpusteward_gpu_info` names it.
"""

from collections.abc import Sequence
from pathlib import Path

import msgspec

from exporter.config.yaml_text import ConfigError, check, parse, read
from exporter.report.summary import Prices

FIX = "write `currency: EUR` and `gpu_hour: {default: 2.5, NVIDIA H100 80GB HBM3: 4}`; docs/report.md explains the keys"


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The keys of the file."""

    gpu_hour: dict[str, float]
    currency: str = ""


def load(path: Path) -> Prices:
    """Read a file of prices. Raises ConfigError."""
    content = read(path)
    try:
        file = check(parse(content, str(path)), _File, str(path))
    except ConfigError as error:
        fix = error.fix if error.fix.startswith("use ") else FIX  # the others are about the daemon's file
        raise ConfigError(error.what, cause=error.cause, fix=fix) from error
    for model, price in file.gpu_hour.items():
        if not 0 <= price < float("inf"):
            raise ConfigError(f"{path}: gpu_hour.{model}: expected a price of 0 or more, got {price}", fix=FIX)
    return Prices(
        file.currency,
        {model: price for model, price in file.gpu_hour.items() if model != "default"},
        file.gpu_hour.get("default"),
    )


def lacking(path: Path, models: Sequence[str]) -> ConfigError:
    """Make the error for models without a price."""
    what = f"{path}: gpu_hour has no price for {', '.join(models)}, and no default"
    return ConfigError(what, fix="add each model, or `default`")
