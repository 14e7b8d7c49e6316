"""Folders of the journal, the lock, the requests and the stop file: all that leads there is root's or the daemon's."""

import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from enforcer.journal.trusted_files import UntrustedError, checked, folder, opened
from enforcer.policy.rules import Ceiling
from enforcer.runtime.stop_file import STOPPED, StopFile

MALLORY = 4711


def give(path: Path) -> None:
    """Give a path to another user, as if that user had made it."""
    if os.geteuid() != 0:
        pytest.skip("only root can give a folder to another user")
    os.chown(path, MALLORY, MALLORY, follow_symlinks=False)


def linked(target: Path | str, path: Path) -> Path:
    path.symlink_to(target)
    return path


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder of our own, two steps below one that tests may hand out."""
    place = tmp_path / "lib" / "gpusteward"
    place.mkdir(parents=True, mode=0o755)
    return place


def writable(home: Path) -> Path:
    home.parent.chmod(0o777)
    return home


def group_writable(home: Path) -> Path:
    home.parent.chmod(0o775)
    return home


def anothers(home: Path) -> Path:
    give(home.parent)
    return home


def a_link_of_another(home: Path) -> Path:
    """In a sticky folder, as /tmp, any user makes links."""
    home.parent.chmod(0o1777)
    link = linked(home, home.parent / "link")
    give(link)
    return link


def a_link_into_a_folder_of_another(home: Path) -> Path:
    give(home.parent)
    return linked(home, home.parent.parent / "link")


def squatted(home: Path) -> Path:
    home.parent.chmod(0o1777)
    give(home)
    return home / "new"


def a_file(home: Path) -> Path:
    (home / "file").touch()
    return home / "file"


@pytest.mark.parametrize(
    ("prepare", "cause"),
    [
        (writable, "lib is writable by other users"),
        (group_writable, "lib is writable by other users"),
        (anothers, f"lib belongs to uid {MALLORY}"),
        (a_link_of_another, f"link belongs to uid {MALLORY}"),
        (a_link_into_a_folder_of_another, f"lib belongs to uid {MALLORY}"),
        (squatted, f"gpusteward belongs to uid {MALLORY}"),
        (a_file, "file is not a folder"),
    ],
)
@pytest.mark.parametrize("below", ["", "deep/er"])
def test_each_step_of_a_path_is_looked_at(home: Path, prepare: Callable[[Path], Path], cause: str, below: str) -> None:
    """The owner of one step could exchange it: nothing is made there, and the error says why."""
    path = prepare(home) / below
    before = sorted(home.parent.parent.rglob("*"))
    for look in (folder, checked):
        with pytest.raises(OSError, match="; fix: ") as caught:
            look(path)
        error = caught.value
        assert isinstance(error, UntrustedError) and error.cause.endswith(cause) and error.fix
        assert all(len(part) <= 160 for part in (error.cause, error.fix)) or len(str(path)) > 80
    assert sorted(home.parent.parent.rglob("*")) == before


def test_a_folder_in_which_any_user_makes_names_has_no_files_of_ours(home: Path) -> None:
    """A sticky folder keeps others from our files, and not from being there first with a name."""
    home.chmod(0o1777)
    with pytest.raises(UntrustedError, match="writable by other users"):
        folder(home)
    folder(home / "own")
    checked(home / "own")
    assert stat.S_IMODE((home / "own").stat().st_mode) == 0o700


@pytest.mark.parametrize("absolute", [False, True])
def test_a_link_of_root_is_followed(home: Path, *, absolute: bool) -> None:
    """As /var/run, which leads to /run: each step behind it is looked at, and a missing folder is made there."""
    link = linked(home if absolute else "../lib/./gpusteward", home.parent / "run")
    folder(link / "state" / "deep")
    assert stat.S_IMODE((home / "state" / "deep").lstat().st_mode) == 0o700
    home.chmod(0o777)
    with pytest.raises(UntrustedError, match=f"^.*{home} is writable"):
        checked(link / "state")


def test_links_that_lead_nowhere(home: Path) -> None:
    """A circle ends with an error, and so does a link to nothing: no folder is made by it."""
    linked("circle", home / "circle")
    linked(home / "nothing", home / "dangling")
    with pytest.raises(OSError, match="Too many levels"):
        folder(home / "circle" / "state")
    with pytest.raises(FileExistsError):
        folder(home / "dangling")
    assert not (home / "nothing").exists()


def test_a_new_folder_is_its_owners_alone(tmp_path: Path) -> None:
    """Each of the folders that are made, whatever the umask is."""
    before = os.umask(0)
    try:
        folder(tmp_path / "a" / "b" / "c")
    finally:
        os.umask(before)
    for made in ("a", "a/b", "a/b/c"):
        assert stat.S_IMODE((tmp_path / made).stat().st_mode) == 0o700


def test_a_file_of_another_is_refused(home: Path) -> None:
    """The owner may change it at any time, whatever its mode is."""
    (home / "journal").touch(mode=0o600)
    give(home / "journal")
    with pytest.raises(UntrustedError, match=f"journal belongs to uid {MALLORY}; fix: "):
        opened(home / "journal", os.O_RDWR)


def ceilings(path: Path) -> tuple[Ceiling, ...]:
    return StopFile(path).ceilings()


def test_a_stop_file_that_others_could_remove_counts_as_there(home: Path) -> None:
    """Nothing is done on a node where another user decides whether the operator's stop holds."""
    stop = home / "stop"
    assert ceilings(stop) == ()
    home.chmod(0o1777)
    assert ceilings(stop) == STOPPED
    home.chmod(0o755)
    give(home.parent)
    assert ceilings(stop) == STOPPED
    assert ceilings(home.parent.parent / "missing" / "stop") == ()
