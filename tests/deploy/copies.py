"""
The chart's copies of the rules and boards, and of the names of sharing systems. `make manifests` writes them.

In: alerts/, grafana/dashboards/ and the catalogue, where people edit them. Out: the same bytes in the chart, names in
its schema. Law: real files, because Flux and Rancher drop symbolic links; tests compare.
"""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

from deploy.chart import CHART, DEPLOY
from exporter.limits.loading import builtin

ROOT = DEPLOY.parent
ALERTS, BOARDS = ROOT / "alerts", ROOT / "grafana" / "dashboards"
FOLDERS = ("alerts", "dashboards")


def files() -> dict[str, Path]:
    """Each copy: path in the chart to the file that it copies."""
    patterns = ("*.yaml", "dcgm/rules*.yaml")
    rules = (one for pattern in patterns for folder in (ALERTS, ALERTS / "exported") for one in folder.glob(pattern))
    boards = BOARDS.rglob("*.json")
    return {f"alerts/{one.relative_to(ALERTS)}": one for one in rules} | {
        f"dashboards/{one.relative_to(BOARDS)}": one for one in boards
    }


def schema() -> str:
    """Write the chart's schema with the systems that the daemon knows."""
    names = json.dumps(sorted(system.name for system in builtin()))
    return re.sub(r'("system": \{"enum": )\[.*\]', rf"\g<1>{names}", (CHART / "values.schema.json").read_text())


def main() -> None:
    """Write them, and remove those whose original is gone."""
    for folder in FOLDERS:
        shutil.rmtree(CHART / folder, ignore_errors=True)
    for path, original in files().items():
        (CHART / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(original, CHART / path)
    (CHART / "values.schema.json").write_text(schema())


if __name__ == "__main__":
    main()
