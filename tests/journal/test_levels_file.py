"""Promises of the levels file: levels come back as they were, for the same boot, build, rules and drivers."""

import json
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from default_rules import default_rules
from enforcer.journal.levels_file import OLDEST, SavedLevels, holds_for, path_of, read, saved, write
from enforcer.policy.history import History, Moment, Settled
from enforcer.policy.holder import HolderKey
from enforcer.policy.levels import Excess, Level, Terms
from enforcer.policy.rules import Ceiling
from enforcer.policy.vocabulary import Mode, Reason, Rung, Trigger
from exporter.model import DeviceKey, GpuUuid, PodUid
from journals import BOOT, LATER

RULES = default_rules(mode=Mode.ENFORCE, build="1.0 abc")
DRIVERS = frozenset({"580.95.05", "570.1"})
CONTAINER = HolderKey(PodUid("uid-1"), "main", "")
CLAIM = HolderKey(PodUid(""), "", "team/claim")
FULL = Level(
    1000.5,
    over=True,
    seconds=47.25,
    since=900.0,
    warned_at=915.0,
    terms=Terms(Mode.ENFORCE, Rung.EVICT, Trigger.LIMIT, (Rung.NOTIFY, Rung.EVICT), Rung.NOTIFY),
    victim="c" * 64,
    own={"c" * 64: 15.0},
    excesses={
        DeviceKey(GpuUuid("GPU-0")): Excess(3, 1000.5, 12 << 30, 1 << 30, 8 << 30),
        DeviceKey(GpuUuid("GPU-1"), 3): Excess(1, 990.5, 2 << 30, 0),
    },
)
HISTORY = History(
    settled=Settled(RULES, DRIVERS, 10.0, vetted=True),
    levels={CONTAINER: FULL, CLAIM: Level(1001.0, over=None, seconds=1.0, since=1000.0)},
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    folder.mkdir(mode=0o700)
    return path_of(folder / "journal")


def made(history: History = HISTORY, boot: str = BOOT) -> SavedLevels:
    levels = saved(history, boot)
    assert levels is not None
    return levels


def test_levels_come_back_as_they_were(path: Path) -> None:
    """Each field of each level, also what was counted on each device."""
    write(path, made())
    found = read(path)
    assert found is not None and found.restored() == HISTORY.levels
    assert (found.vetted, found.version) == (True, 1)


def test_the_file_is_json_for_its_owner_alone(path: Path) -> None:
    """`journal.levels` beside the journal, 0600, and no draft is left."""
    write(path, made())
    write(path, made())
    assert path.name == "journal.levels" and path.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in path.parent.iterdir()] == ["journal.levels"]
    assert json.loads(path.read_bytes())["boot_id"] == BOOT


def test_before_the_first_snapshot_there_is_nothing_to_save() -> None:
    """What the levels would hold for is not known yet."""
    assert saved(History(), BOOT) is None


@pytest.mark.parametrize(
    ("boot", "rules", "drivers", "holds"),
    [
        (BOOT, RULES, DRIVERS, True),
        (LATER, RULES, DRIVERS, False),
        (BOOT, replace(RULES, build="1.1 abc"), DRIVERS, False),
        (BOOT, replace(RULES, grace=60.0), DRIVERS, False),
        (BOOT, RULES, frozenset({"590.1"}), False),
        (BOOT, RULES, DRIVERS | {"590.1"}, False),
        (BOOT, RULES, frozenset({"580.95.05"}), True),
        (BOOT, replace(RULES, own_pod=PodUid("mine")), DRIVERS, True),
        (BOOT, replace(RULES, ceilings=(Ceiling(Mode.OBSERVE, Reason.STOPPED),)), DRIVERS, True),
    ],
    ids=["same", "boot", "version", "rules", "driver", "one more driver", "a silent GPU", "own pod", "ceilings"],
)
def test_levels_hold_for_what_they_were_saved_under(
    boot: str, rules: object, drivers: frozenset[str], *, holds: bool
) -> None:
    """A restart changes the daemon's own pod and its ceilings. Any other change is a change of ours."""
    assert holds_for(made(), boot, rules, drivers, Moment(made().at, made().at)) is holds  # type: ignore[arg-type]


@pytest.mark.parametrize(("later", "holds"), [(0.0, True), (OLDEST, True), (OLDEST + 1, False), (-1.0, False)])
def test_levels_of_long_ago_are_not_restored(later: float, *, holds: bool) -> None:
    """A file of a daemon that stopped enforcing more than five minutes ago says nothing of the present."""
    assert holds_for(made(), BOOT, RULES, DRIVERS, Moment(made().at + later, made().at + later)) is holds


def _other_version(path: Path) -> None:
    write(path, msgspec.structs.replace(made(), version=2))


def _without_its_time(path: Path) -> None:
    write(path, made())
    path.write_bytes(path.read_bytes().replace(b'"read_at":', b'"read":'))


def _half(path: Path) -> None:
    write(path, made())
    path.write_bytes(path.read_bytes()[:-40])


def _another_type(path: Path) -> None:
    write(path, made())
    path.write_bytes(path.read_bytes().replace(b'"seconds":47.25', b'"seconds":"many"'))


def _open_to_all(path: Path) -> None:
    write(path, made())
    path.chmod(0o666)


def _a_link(path: Path) -> None:
    write(path, made())
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


@pytest.mark.parametrize(
    "spoil", [_other_version, _without_its_time, _half, _another_type, _open_to_all, _a_link, Path.mkdir]
)
def test_a_file_that_cannot_be_used_is_none(path: Path, spoil: object) -> None:
    """Torn, foreign, of another version: the levels begin at 0, and nothing is raised."""
    spoil(path)  # type: ignore[operator]
    assert read(path) is None


def test_a_file_of_another_version_may_have_any_shape(path: Path) -> None:
    """Levels of a version that was rolled back begin at 0, without a warning: the file is not broken."""
    write(path, made())
    text = path.read_text().replace('"version":1', '"version":2').replace('"read_at":', '"read":')
    with capture_logs() as logs:
        for other in (text, text.replace('"levels":', '"by_holder":')):
            path.write_text(other)
            assert read(path) is None
    assert not logs


def test_without_a_file_there_are_no_levels(path: Path) -> None:
    """A first start."""
    assert read(path) is None


def test_a_disk_that_is_full_leaves_the_old_file(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OSError, the file as before, and no draft."""
    write(path, made())
    before = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full)
    with pytest.raises(OSError, match="No space"):
        write(path, made(History(settled=HISTORY.settled)))
    assert path.read_bytes() == before and [one.name for one in path.parent.iterdir()] == ["journal.levels"]


@pytest.mark.parametrize(("slept", "holds"), [(0.0, True), (8 * 3600.0, False)])
def test_levels_of_before_a_sleep_are_not_restored(slept: float, *, holds: bool) -> None:
    """The machine slept between saving and restoring: monotonic time did not pass, and the excess is long ago."""
    awake = made()
    assert holds_for(awake, BOOT, RULES, DRIVERS, Moment(awake.at, awake.at + awake.asleep + slept)) is holds
