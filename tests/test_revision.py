"""The git commit in a wheel: of the checkout that it is built of, or of the image's build, else unknown."""

from __future__ import annotations

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest
from hatchling.build import build_wheel

from exporter.base.revision import FILE, revision

ROOT = Path(__file__).parents[1]
BUILT_OF = ("hatch_build.py", "pyproject.toml", "README.md", "LICENSE", "exporter/__init__.py", "enforcer/__init__.py")
GIVEN = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What a wheel is built of, without git."""
    for name in BUILT_OF:
        (tmp_path / "source" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / "source" / name)
    return tmp_path / "source"


def git(source: Path, *words: str) -> str:
    names = ("-c", "user.name=a", "-c", "user.email=a@example.com")
    return subprocess.run(
        ["git", *names, *words], cwd=source, check=True, capture_output=True, text=True
    ).stdout.strip()


def committed(source: Path) -> str:
    """Make a checkout of it; return its commit."""
    git(source, "init", "-q")
    git(source, "add", ".")
    git(source, "commit", "-q", "-m", "all")
    return git(source, "rev-parse", "HEAD")


def in_wheel(source: Path, **env: str) -> str | None:
    """Build a wheel as pip does, with Hatchling in this process; return the revision in it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(source)
        patch.delenv("GPUSTEWARD_REVISION", raising=False)
        for name, value in env.items():
            patch.setenv(name, value)
        built = source.parent / build_wheel(str(source.parent))
    with zipfile.ZipFile(built) as wheel:
        name = f"exporter/{FILE}"
        return wheel.read(name).decode().strip() if name in wheel.namelist() else None


def test_a_wheel_of_a_checkout_names_its_commit(source: Path) -> None:
    """The whole hash; with `-dirty` where a file differs from the commit."""
    commit = committed(source)
    assert in_wheel(source) == commit
    (source / "exporter/__init__.py").write_text("# changed\n")
    assert in_wheel(source) == f"{commit}-dirty"


def test_an_image_names_the_commit_that_its_builder_gives(source: Path) -> None:
    """Git's folder is not in the image's build; an empty build argument is none."""
    assert in_wheel(source, GPUSTEWARD_REVISION=GIVEN) == GIVEN
    assert in_wheel(source, GPUSTEWARD_REVISION="") is None


def test_the_commit_of_something_else_is_not_ours(source: Path) -> None:
    """Sources that lie in a folder of another checkout have no revision."""
    git(source.parent, "init", "-q")
    git(source.parent, "commit", "-q", "--allow-empty", "-m", "theirs")
    assert in_wheel(source) is None


def test_without_the_file_it_is_unknown() -> None:
    """This checkout is installed as it is, and may have changed since."""
    assert revision() == "unknown"
