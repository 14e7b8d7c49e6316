"""A changed file is applied, asks for a restart, or is refused whole."""

# ruff: noqa: ASYNC240  (a test may touch the local disk)
import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from exporter.config import Arguments, Config, ConfigError, Reloaded, load, reloads
from exporter.config.reload import settled

POLL = 0.01


class Watched:
    """A config file under watch."""

    def __init__(self, path: Path, *, poll: float = POLL) -> None:
        self.arguments = Arguments(config_file=path)
        self.config = load(self.arguments)
        self.changes: AsyncIterator[Reloaded | ConfigError] = reloads(self.arguments, self.config, poll=poll)

    async def next(self) -> Reloaded | ConfigError:
        async with asyncio.timeout(10):
            return await anext(self.changes)


async def reloaded(watched: Watched) -> Reloaded:
    change = await watched.next()
    assert isinstance(change, Reloaded), change
    return change


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "config.yaml"
    path.write_text("sampling: {interval: 5s}")
    return path


async def test_live_keys_are_applied(file: Path) -> None:
    """Sampling intervals, the log level and the names file change while the daemon runs."""
    watched = Watched(file)
    file.write_text("sampling: {interval: 10s, fast_interval: 1s}\nlog: {level: debug}\nnames: {file: n.yaml}")
    change = await reloaded(watched)
    assert set(change.applied) == {"sampling.interval", "sampling.fast_interval", "log.level", "names.file"}
    assert change.needs_restart == ()
    assert (change.config.sampling.interval, change.config.log.level) == (10.0, "debug")
    assert change.message == "applied sampling.interval, sampling.fast_interval, names.file, log.level"


async def test_other_keys_wait_for_a_restart(file: Path) -> None:
    """What cannot be applied stays as it was and is named, next to what could."""
    watched = Watched(file)
    file.write_text("sampling: {interval: 10s}\ndevices: simulated\nweb: {listen_address: ':1'}")
    change = await reloaded(watched)
    assert change.config.devices == "auto"
    assert change.config.web.listen_address == ":9478"
    assert change.config.sampling.interval == 10.0
    assert change.message == "applied sampling.interval; restart the daemon to apply devices, web.listen_address"
    file.write_text("sampling: {interval: 10s}")
    change = await reloaded(watched)
    assert (change.applied, change.needs_restart) == ((), ())
    assert change.message == "nothing differs from what is in force"


async def test_files_of_the_policy_and_admission_wait_for_a_restart(file: Path) -> None:
    """What the daemon finds, opens or proves at its start stays; the rest of the policy is applied at once."""
    watched = Watched(file)
    files = "stop_file: /a/stop, journal: /a/journal"
    file.write_text(f"sampling: {{interval: 5s}}\npolicy: {{mode: warn, {files}, admission: ignore}}")
    change = await reloaded(watched)
    waiting = ("policy.stop_file", "policy.journal", "policy.admission")
    assert (change.applied, change.needs_restart) == (("policy",), waiting)
    assert change.message == f"applied policy; restart the daemon to apply {', '.join(waiting)}"
    policy = change.config.policy
    assert (policy.mode, policy.journal, policy.admission) == ("warn", None, "required")
    assert policy.stop_file == Path("/run/gpusteward/stop")
    file.write_text("sampling: {interval: 5s}\npolicy: {mode: warn, journal: /b/journal}")
    change = await reloaded(watched)
    assert (change.applied, change.needs_restart) == ((), ("policy.journal",))


async def test_an_invalid_file_changes_nothing_and_its_repair_is_told(file: Path) -> None:
    """The last good config stays whole; the same text again ends the fault."""
    watched = Watched(file)
    file.write_text("log: {level: debug}\nsampling: {interval: 5 apples}")
    change = await watched.next()
    assert isinstance(change, ConfigError)
    assert "sampling.interval" in str(change)
    file.write_text("sampling: {interval: 5s}")
    repaired = await reloaded(watched)
    assert repaired.config == watched.config
    assert repaired.applied == ()


@pytest.mark.parametrize("text", ["node: &n {name: *n}", "sampling: {interval: !!float ''}", "log: {level: !!bool x}"])
async def test_what_the_yaml_library_stumbles_over_ends_no_watch(file: Path, text: str) -> None:
    """Recursion, an IndexError, a KeyError: each is a refusal with its place, and the next text counts again."""
    watched = Watched(file)
    file.write_text(text)
    change = await watched.next()
    assert isinstance(change, ConfigError)
    assert f"{file}:1:" in str(change)
    file.write_text("sampling: {interval: 6s}")
    assert (await reloaded(watched)).config.sampling.interval == 6.0


async def test_a_missing_file_is_an_error_not_an_empty_one(file: Path) -> None:
    """Removing the file must not bring the defaults back."""
    watched = Watched(file)
    file.unlink()
    change = await watched.next()
    assert isinstance(change, ConfigError)
    assert "no such file" in str(change)


async def test_a_configmap_swap_is_seen(tmp_path: Path) -> None:
    """The kubelet swaps `..data`, a link two levels above the file that we were given."""
    for version, interval in (("..1", "5s"), ("..2", "7s")):
        (tmp_path / version).mkdir()
        (tmp_path / version / "config.yaml").write_text(f"sampling: {{interval: {interval}}}")
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "config.yaml").symlink_to("..data/config.yaml")
    watched = Watched(tmp_path / "config.yaml")
    (tmp_path / "..data_tmp").symlink_to("..2")
    (tmp_path / "..data_tmp").rename(tmp_path / "..data")
    assert (await reloaded(watched)).config.sampling.interval == 7.0


async def test_a_text_that_is_still_being_written_is_not_taken() -> None:
    """An editor truncates before it fills: the empty file in between is valid, and must not count."""
    texts = ["old", "old", "", "new", "new", "new"]
    seen = settled(lambda: texts.pop(0) if len(texts) > 1 else texts[0], poll=POLL)
    async with asyncio.timeout(10):
        assert [await anext(seen), await anext(seen)] == ["old", "new"]


async def test_a_change_between_loading_and_watching_is_found(file: Path) -> None:
    """No change falls between the first reading and the first look of the watcher."""
    arguments = Arguments(config_file=file)
    running: Config = load(arguments)
    file.write_text("sampling: {interval: 9s}")
    async with asyncio.timeout(10):
        change = await anext(reloads(arguments, running, poll=POLL))
    assert isinstance(change, Reloaded)
    assert change.config.sampling.interval == 9.0


async def test_flags_stay_in_force_over_a_reload(file: Path) -> None:
    """What the command line said is not undone by the file."""
    arguments = Arguments(file, {"log.level": "warning"}, {"log.level": "--log.level"})
    running = load(arguments)
    file.write_text("log: {level: debug}\nsampling: {interval: 6s}")
    async with asyncio.timeout(10):
        change = await anext(reloads(arguments, running, poll=POLL))
    assert isinstance(change, Reloaded)
    assert change.applied == ("sampling.interval",)
    assert change.config.log.level == "warning"


async def test_without_a_file_there_is_nothing_to_watch() -> None:
    """The watcher ends at once, and so the daemon may always start it."""
    assert [change async for change in reloads(Arguments(), load(Arguments()))] == []
