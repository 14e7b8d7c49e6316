"""Promises of enforcer/journal_file: what was promised is on disk, whatever happens to daemon, disk and file."""

import errno
import json
import os
import resource
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from default_rules import default_budgets, default_rules
from enforcer.actions.interface import Answer, Heard
from enforcer.journal import file as journal_file
from enforcer.journal.file import Given, JournalError, JournalFile
from enforcer.journal.fold import UNKNOWN, changes, replayed
from enforcer.journal.records import Acked, Ended, Sent, decode
from enforcer.journal.writer import JournalWriter
from enforcer.policy.history import History, Opened, Result
from enforcer.policy.rules import Budget
from enforcer.policy.vocabulary import Breaker, Mode
from journals import BOOT, LATER, Hands, action, intended, uuid
from pace import quick
from patience import PATIENCE

RULES = default_rules(mode=Mode.ENFORCE, budgets=default_budgets(node=Budget(3, 600.0)))
ROOT = Path(__file__).resolve().parents[2]
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT / "tests"), str(ROOT)))}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the journal is to be: in a folder that is not there yet."""
    return tmp_path / "gpusteward" / "journal"


def opened(path: Path, hands: Hands | None = None) -> JournalFile:
    return journal_file.opened(path, RULES, version="1.0", given=(hands or Hands()).given)


def records(path: Path) -> list[str]:
    return [json.loads(line)["record"] for line in path.read_bytes().splitlines()]


def test_the_next_daemon_finds_what_this_one_kept(path: Path) -> None:
    """Tokens, breakers and open decisions are the same for the next daemon, and for the one that wrote them."""
    hands = Hands()
    first = opened(path, hands)
    first.append(intended(uuid(1), action(1)))
    first.append(Sent(uuid(1)))
    first.append(Acked(uuid(1), Answer(Heard.ACCEPTED, "", 201)))
    first.append(Ended(uuid(1), Result.VERIFIED, ""))
    first.append(intended(uuid(2), action(2)))
    now = History(breakers={Breaker.INTERNAL: Opened(200.0, "?")})
    first.append(*changes(History(), now))
    kept = first.kept
    first.close()
    second = opened(path, hands)
    assert second.kept == kept
    assert (len(kept.spent), set(kept.open), set(kept.breakers)) == (2, {uuid(2)}, {Breaker.INTERNAL})
    assert [token.time for token in kept.spent] == [1.7e9 + 200.0] * 2, "for the back-off of their workload"
    second.append(*changes(now, History(), by="ann"))
    second.close()
    first_life = "state started intent sent acked ended intent breaker_opened stopped"
    assert records(path) == f"{first_life} started breaker_closed stopped".split()
    assert opened(path, hands).kept.breakers == {}


def intents(path: Path) -> list[dict[str, str]]:
    return [json.loads(line) for line in path.read_bytes().splitlines() if b'"record":"intent"' in line]


async def test_an_intent_says_by_which_rules(path: Path) -> None:
    """Mode and digest of the rules in force stand with the intent; other rules are another digest."""
    journal = opened(path)
    writer = JournalWriter(journal, pytest.fail)
    await writer.intend(uuid(1), action(1))
    journal.rules = replace(RULES, grace=60.0)
    await writer.intend(uuid(2), action(2))
    first, second = intents(path)
    assert (first["mode"], second["mode"]) == ("enforce", "enforce")
    assert first["rules"] != second["rules"]


def test_nobody_else_reads_or_writes_it(path: Path) -> None:
    """File and folder are made for their owner alone, whatever the umask is."""
    before = os.umask(0)
    try:
        opened(path).close()
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def _link(path: Path) -> None:
    (path.parent / "other").touch()
    path.symlink_to(path.parent / "other")


@pytest.mark.parametrize(
    ("prepare", "why"),
    [
        (lambda path: path.parent.chmod(0o777), "is writable by other users"),
        (lambda path: path.parent.parent.chmod(0o777), "is writable by other users"),
        (lambda path: (path.touch(), path.chmod(0o666)), "is writable by other users"),
        (_link, "symbolic link"),
        (lambda path: path.mkdir(), "directory"),
        (os.mkfifo, "is not a regular file"),
        (lambda path: (path.parent.rmdir(), path.parent.touch()), "is not a folder"),
    ],
    ids=["open folder", "open parent", "open file", "link", "folder", "pipe", "file as folder"],
)
def test_what_others_could_have_made_is_refused(path: Path, prepare: Callable[[Path], object], why: str) -> None:
    """A journal that another user may write, or that is no file, is refused."""
    path.parent.mkdir(mode=0o700)
    prepare(path)
    with pytest.raises(JournalError, match=why):
        opened(path)


# --- deaths -----------------------------------------------------------------------------------------------------------


EVERY = 5 if quick() else 1
"""Which moments before and after a call are played: each, or each fifth. Five is odd, so that both kinds are."""


@pytest.fixture(scope="module")
def graves() -> Iterator[list[Path]]:
    """Daemons killed at steps of the same story (`EVERY`); in memory, because a kill does not ask what is on disk."""
    memory = Path("/dev/shm")
    with TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:
        subprocess.run([sys.executable, "-m", "dying", folder, str(EVERY)], check=True, env=ENV, timeout=PATIENCE)
        yield sorted(Path(folder).iterdir(), key=lambda one: int(one.name))


@pytest.mark.fault(49, 50, 52)
def test_a_daemon_killed_anywhere_leaves_what_it_promised(graves: list[Path]) -> None:
    """Killed before or after each call to the kernel: tokens, open decisions and breakers are there for the next."""
    assert len(graves) * EVERY > 150
    seen = set()
    for grave in graves:
        said = (grave / "said").read_text().splitlines()
        opens = {line.split()[1] for line in said if line.startswith("open")}
        ends = {line.split()[1] for line in said if line.startswith("end")}
        path = grave / "state" / "journal"
        journal = opened(path, Hands(boottime=1000.0))
        kept = journal.kept
        assert Breaker.JOURNAL not in kept.breakers, grave  # to be killed is no damage
        assert len(kept.spent) >= said.count("token"), grave
        assert len(kept.spent) <= said.count("token") + 1, grave
        assert opens - ends <= set(kept.open), grave
        assert "breaker" not in said or Breaker.INTERNAL in kept.breakers, grave
        # And it can be written on.
        journal.append(intended(uuid(99), action(99)))
        journal.close()
        again = opened(path, Hands(boottime=1000.0))
        assert (len(again.kept.spent), set(again.kept.open)) == (len(kept.spent) + 1, {*kept.open, uuid(99)}), grave
        again.close()
        seen |= {*records(path)}
    assert seen >= {"state", "intent", "ended", "breaker_opened"}


def test_a_new_file_is_on_disk_before_it_takes_the_old_ones_place(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The order that a power cut wants: the new file synced, then renamed, then the folder synced; then it counts."""
    calls: list[str] = []
    names: dict[int, str] = {}
    real = {name: getattr(os, name) for name in ("open", "write", "fsync", "fdatasync", "rename", "replace", "link")}

    def spy(name: str) -> Callable[..., object]:
        def call(*args: object, **kwargs: object) -> object:
            result = real[name](*args, **kwargs)
            if name == "open":
                names[result] = Path(str(args[0])).name
            else:
                calls.append(f"{name} {names[args[0]] if isinstance(args[0], int) else Path(str(args[0])).name}")
            return result

        return call

    for name in real:
        monkeypatch.setattr(os, name, spy(name))
    journal = opened(path, Hands(limit=600))
    assert calls[0] == f"fsync {path.parent.parent.name}"  # the folder that was made
    made = ["write journal.new", "fsync journal.new", "replace journal.new", "fsync gpusteward"]
    assert [one.replace("rename", "replace") for one in calls][-6:] == [
        *made,
        "write journal.new",
        "fdatasync journal.new",
    ]
    journal.append(intended(uuid(1), action(1)))
    calls.clear()
    journal.append(intended(uuid(2), action(2)))
    assert [one.replace("rename", "replace") for one in calls] == [
        *made[:2],
        "link journal",
        *made[2:],
        "write journal.new",
        "fdatasync journal.new",
    ]


@pytest.mark.parametrize("kind", ["torn", "unended"])
def test_a_torn_record_is_mended_and_stays_charged(path: Path, kind: str) -> None:
    """A file with a torn end is read, repaired and continued. The torn record stays charged to the budget."""
    hands = Hands()
    journal = opened(path, hands)
    journal.append(intended(uuid(1), action(1)))
    journal.append(intended(uuid(2), action(2)))
    path.write_bytes(path.read_bytes()[: -1 if kind == "unended" else -25])
    for _ in range(3):
        journal = opened(path, hands)
        assert len(journal.kept.spent) == 2
        assert set(journal.kept.open) == ({uuid(1), uuid(2)} if kind == "unended" else {uuid(1)})
        assert journal.kept.breakers == {}
        journal.close()
    assert all(decode(line) for line in path.read_bytes().splitlines())


@pytest.mark.fault(60)
def test_a_damaged_file_is_kept_aside_and_everything_forfeit(path: Path) -> None:
    """One bit in the middle: the budget is used up, the breaker is open until a person closes it, the file is kept."""
    hands = Hands()
    journal = opened(path, hands)
    journal.append(intended(uuid(1), action(1)))
    journal.close()
    data = bytearray(path.read_bytes())
    data[300] ^= 4
    path.write_bytes(data)
    journal = opened(path, hands)
    for _ in range(2):
        assert "damaged" in journal.kept.breakers[Breaker.JOURNAL].detail
        assert [one.workload for one in journal.kept.spent].count(UNKNOWN) == RULES.budgets.node.most
        journal.close()
        journal = opened(path, hands)
    assert (path.parent / "journal.damaged-1").read_bytes() == data
    journal.append(*changes(History(breakers=journal.kept.breakers), History(), by="ann"))
    journal.close()
    assert opened(path, hands).kept.breakers == {}


def test_eight_damaged_files_are_kept(path: Path) -> None:
    """A disk that damages the file at each start does not fill up with what it damaged."""
    for _ in range(12):
        opened(path).close()
        path.write_bytes(path.read_bytes()[5:])
    opened(path).close()
    assert len([*path.parent.glob("journal.damaged-*")]) == 8


def test_a_file_too_large_is_none_of_ours(path: Path) -> None:
    """No more is read than a journal can have; what is larger is set aside."""
    opened(path).close()
    with path.open("ab") as file:
        file.truncate(journal_file.LARGEST + 4096)
    assert Breaker.JOURNAL in opened(path).kept.breakers


@pytest.mark.fault(61)
def test_what_another_boot_left_binds(path: Path) -> None:
    """After a reboot spent budget ages by proven time only. An open decision is marked, and the breaker is open."""
    journal = opened(path, Hands(boottime=5000.0))
    journal.append(intended(uuid(1), action(1)))
    journal.append(*changes(History(), History(breakers={Breaker.INTERNAL: Opened(5000.0, "?")})))
    journal.close()
    later = opened(path, Hands(boottime=20.0, boot=LATER)).kept
    assert [one.at for one in later.spent] == [0.0]
    assert later.open[uuid(1)].rebooted
    assert set(later.breakers) == {Breaker.INTERNAL}


# --- full, and other people's hands -----------------------------------------------------------------------------------


@contextmanager
def largest(size: int) -> Iterator[None]:
    """Let no file grow beyond `size`: the kernel then writes what fits, and refuses the rest."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


@pytest.mark.fault(60)
def test_a_record_that_does_not_fit_is_not_there(path: Path) -> None:
    """With room for half a record, or none: JournalError, the file as before; with room again it goes on."""
    hands = Hands()
    journal = opened(path, hands)
    journal.append(intended(uuid(1), action(1)))
    before = path.read_bytes()
    for room in (0, 1, 300):
        with largest(len(before) + room), pytest.raises(JournalError):
            journal.append(intended(uuid(2), action(2)))
        assert path.read_bytes() == before
    assert len(journal.kept.spent) == 1
    journal.append(intended(uuid(3), action(3)))
    journal.close()
    assert set(opened(path, hands).kept.open) == {uuid(1), uuid(3)}


def test_a_full_disk_at_the_start_is_told(path: Path) -> None:
    """A daemon that cannot even note its start does not act."""
    opened(path).close()
    with largest(path.stat().st_size), pytest.raises(JournalError):
        opened(path)
    assert opened(path).kept.spent == ()


def test_a_full_disk_as_the_file_is_rewritten_loses_nothing(path: Path) -> None:
    """The old file stays and is written on; when there is room, it is rewritten."""
    hands = Hands(limit=3000)
    journal = opened(path, hands)
    while path.stat().st_size < 3000:
        journal.append(intended(uuid(len(journal.kept.spent)), action(1)))
    count = len(journal.kept.spent)
    (path.parent / "journal.new").mkdir()  # nothing can be put there
    journal.append(intended(uuid(count), action(1)))
    assert records(path).count("intent") == count + 1
    (path.parent / "journal.new").rmdir()
    while records(path).count("intent") > count:
        journal.append(Ended(uuid(0), Result.VERIFIED, ""))
    assert len(journal.kept.spent) == count + 1
    assert set(opened(path, hands).kept.open) == {uuid(number) for number in range(1, count + 1)}


@pytest.mark.fault(60)
def test_a_small_disk_fills_up(tmp_path: Path) -> None:
    """A file system without room: actions end with JournalError, all of before is read, and with room it goes on."""
    apart = ["unshare", "--mount", "--map-root-user"]
    if subprocess.run([*apart, "true"], check=False).returncode != 0:
        no = pytest.fail if os.environ.get("CI") == "true" else pytest.skip
        no("no mount namespace is to be had here")
    told = subprocess.run(
        [*apart, sys.executable, "-m", "filling", str(tmp_path)], check=True, env=ENV, capture_output=True, text=True
    )
    found = json.loads(told.stdout)
    assert "No space left" in found["why"]
    assert "No space left" in found["why_not"]
    assert found["noted"] > 10
    assert found["noted"] == found["remembered"] == found["found"] == found["open"]
    assert found["breakers"] == found["drafts"] == []
    assert "journal.not_rewritten" in told.stderr


@pytest.mark.fault(60)
def test_a_failed_sync_is_the_end(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After EIO the kernel may have dropped what it could not write: the journal takes no more records."""
    journal = opened(path)

    def sick(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, "fdatasync", sick)
    with pytest.raises(JournalError, match="cannot be synced"):
        journal.append(intended(uuid(1), action(1)))
    monkeypatch.undo()
    with pytest.raises(JournalError, match="cannot be synced"):
        journal.append(intended(uuid(2), action(2)))
    assert len(opened(path).kept.spent) in (0, 1)


@pytest.mark.parametrize(
    "meddle",
    [
        lambda path: path.rename(path.with_name("taken-away")),
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes() + b"x"),
        lambda path: (path.rename(path.with_name("taken-away")), path.touch()),
    ],
    ids=["moved", "removed", "emptied", "written", "exchanged"],
)
def test_a_file_that_others_touched_is_given_up(path: Path, meddle: Callable[[Path], object]) -> None:
    """What a log rotation or a person did to the file is seen before the next action, and stops it."""
    journal = opened(path)
    meddle(path)
    with pytest.raises(JournalError):
        journal.append(intended(uuid(1), action(1)))
    assert journal.kept.spent == ()


def test_it_stays_small(path: Path) -> None:
    """Forty days of actions leave two files of a bounded size, with all the tokens that count and what is open."""
    hands = Hands(limit=20_000)
    journal = opened(path, hands)
    journal.append(intended(uuid(0), action(0)))
    for number in range(1, 401):
        hands.boottime += 86400.0 / 10
        journal.append(intended(uuid(number), action(number)))
        journal.append(Ended(uuid(number), Result.VERIFIED, ""))
        assert path.stat().st_size < 80_000  # twice the state of 310 tokens
    kept = replayed(path.read_bytes(), hands.boottime, hands.boot, most=3).kept
    assert kept == journal.kept
    assert set(kept.open) == {uuid(0)}
    assert sum(hands.boottime - one.at < 31 * 86400.0 for one in kept.spent) == 310
    assert {one.name for one in path.parent.iterdir()} == {"journal", "journal.1"}


def test_threads_do_not_mix_lines(path: Path) -> None:
    """Breakers of one thread and intents of another are lines of their own, in one order."""
    journal = opened(path)

    def write(base: int) -> None:
        for number in range(base, base + 50):
            journal.append(intended(uuid(number), action(1)))

    threads = [threading.Thread(target=write, args=(base,)) for base in (0, 100, 200)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(opened(path).kept.open) == 150
    assert Breaker.JOURNAL not in opened(path).kept.breakers


def test_no_child_inherits_it(path: Path) -> None:
    """A process that the daemon starts has no descriptor of the journal."""
    opened(path)
    code = "import os; print([os.readlink(f'/proc/self/fd/{n}') for n in os.listdir('/proc/self/fd') if n > '2'])"
    told = subprocess.run([sys.executable, "-c", code], close_fds=False, capture_output=True, text=True, check=False)
    assert "journal" not in told.stdout + told.stderr


def test_the_kernels_own_clocks(path: Path) -> None:
    """With nothing given, the stamps are the kernel's: this boot's id, seconds since its start, Unix time."""
    journal_file.opened(path, RULES).close()
    line = json.loads(path.read_bytes().splitlines()[0])
    assert line["boot_id"] == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    assert 0 < line["boottime"] <= float(Path("/proc/uptime").read_text().split()[0]) + 1
    assert line["time"] > 1.7e9


def test_without_a_boot_id_nobody_acts(path: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Times of an unknown boot mean nothing."""
    monkeypatch.setattr(journal_file, "_BOOT_ID", tmp_path / "none")
    with pytest.raises(JournalError):
        journal_file.opened(path, RULES)
    assert journal_file.opened(path, RULES, given=Given(BOOT)).kept.spent == ()
