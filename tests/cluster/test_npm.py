"""What npm brings is pinned, and what is kept is whole."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from cluster import npm
from cluster.build import BuildError
from prose.linting import PACKAGES


@pytest.mark.parametrize("folder", [npm.GRAFANA, PACKAGES], ids=["grafana", "prose"])
def test_every_package_is_pinned_by_a_checksum(folder: Path) -> None:
    """The lock has each package with its checksum, and no address: each machine chooses its registry."""
    lock = json.loads((folder / "package-lock.json").read_text())
    wanted = json.loads((folder / "package.json").read_text())["dependencies"]
    packages = {name: one for name, one in lock["packages"].items() if name}
    assert len(packages) > 50
    assert all(one["integrity"].startswith("sha512-") and "resolved" not in one for one in packages.values())
    assert {name: packages[f"node_modules/{name}"]["version"] for name in wanted} == wanted


@pytest.mark.boards
def test_an_install_that_failed_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A lock that cannot be read raises npm's own words, and the next run tries again."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    source = tmp_path / "source"
    shutil.copytree(npm.GRAFANA, source)
    (source / "package-lock.json").write_text("{")
    for _ in range(2):
        with pytest.raises(BuildError, match=r"(?s)npm ci in .* failed.*package-lock"):
            npm.packages(source)
    assert [path.name for path in (tmp_path / "cache" / "gpusteward" / "npm").iterdir()] == ["lock"]
