"""
A release of this checkout, made as a maintainer makes one, in a clone with a version and a changelog of its own.

In: the checkout as it is, with what is not committed. Out: a folder of files, and what is in the registry.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from cluster import build
from cluster.image import DATE, ROOT
from cluster.registry import Loopback

VERSION = "99.0.0"
"""That of no commit."""
OWNER = "team"
PASSWORD = {"COSIGN_PASSWORD": "of the test"}
DATED = {"GIT_COMMITTER_DATE": f"{DATE} +0000"}
"""As old as the images of the tests, so that their bases are built once."""


@dataclass(frozen=True, slots=True)
class Released:
    """What `make release` made of `clone`; `printed`: its lines."""

    registry: Loopback
    clone: Path
    keys: Path
    printed: str

    @property
    def folder(self) -> Path:
        """The files."""
        return self.clone / "dist" / VERSION

    @property
    def name(self) -> str:
        """Where it was published."""
        return f"{self.registry.address}/{OWNER}"

    def digest(self, kind: str) -> str:
        """What the notes say of `gpusteward` or `charts/gpusteward`."""
        notes = (self.folder / "NOTES.md").read_text()
        return notes.split(f"{self.name}/{kind}@")[1][: len("sha256:") + 64]

    def named(self, kind: str) -> str:
        """The name with the digest."""
        return f"{self.name}/{kind}@{self.digest(kind)}"


def cloned(folder: Path) -> Path:
    """A clone with a commit in which this checkout has the version, and nothing is left to commit."""
    clone = folder / "clone"
    run("git", "clone", "--quiet", str(ROOT), str(clone))
    for name in run("git", "ls-files", "--modified", "--others", "--exclude-standard", cwd=ROOT).splitlines():
        source, to = ROOT / name, clone / name
        if source.is_symlink() or source.exists():
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, to, follow_symlinks=False)
        else:
            to.unlink()
    version(clone, "pyproject.toml", 'version = "', VERSION)
    changes = clone / "CHANGELOG.md"
    heading = f"## {VERSION}, of the test"
    changes.write_text(re.sub(r"^## .*$", heading, changes.read_text(), count=1, flags=re.MULTILINE))
    for module in ("tools.release.source", "deploy.plain"):  # what `make manifests` runs
        run(sys.executable, "-m", module, cwd=clone, env={"PYTHONPATH": f"{clone}:{clone / 'tests'}"})
    commit(clone)
    return clone


def version(clone: Path, name: str, before: str, wanted: str) -> None:
    """Change the version in a file: the text between `before` and the end of the line's quote."""
    file = clone / name
    head, _, rest = file.read_text().partition(before)
    file.write_text(head + before + wanted + rest[rest.index('"') :])


def commit(clone: Path) -> None:
    """Commit all."""
    run("git", "add", "--all", cwd=clone)
    author = ("-c", "user.name=tests", "-c", "user.email=tests@example.com")
    run("git", *author, "commit", "--quiet", "--no-verify", "--message=A release", cwd=clone, env=DATED)


def make_release(clone: Path, registry: str, keys: Path, *, wanted: str = VERSION) -> str:
    """Run `make release`; what it prints. Raises CalledProcessError with its complaint as a note."""
    environment = Path(sys.executable).parents[1]  # with what `make` would install into it
    flags = (f"--store={build.cache() / 'image'}", "--source=https://git.example/gpusteward")
    return run(
        "make", f"--old-file={environment}/.release", "release", f"VENV={environment}", f"VERSION={wanted}",
        f"REGISTRY={registry}", f"KEY={keys / 'cosign.key'}", f"FLAGS={' '.join(flags)}",
        cwd=clone, env=PASSWORD,
    )  # fmt: skip


def run(*words: str, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> str:
    """Run a program; what it prints. Raises CalledProcessError with its complaint as a note."""
    variables = {**os.environ, **(env or {})}
    try:
        done = subprocess.run(words, cwd=cwd, env=variables, capture_output=True, text=True, check=True)
    except subprocess.CalledProcessError as error:
        error.add_note(f"{error.stdout}\n{error.stderr}"[-6000:])
        raise
    return done.stdout
