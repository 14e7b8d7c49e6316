"""
Watches files, and reports when the operator changes the config.

What comes in: the config in force. What goes out: `Reloaded`, or the `ConfigError` of an unusable text. After an error
the last good config stays in force as a whole.

The rule: a text counts after two equal readings, one poll apart. Editors truncate a file before they fill it, and half
a config is often valid YAML. Contents are compared, not times. An update of a ConfigMap swaps a link two levels up and
rewrites no file, so inotify does not see it. Reading a few kilobytes per second is cheaper than a cleverer way.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
from typing import TypeVar

from exporter.config.arguments import Arguments
from exporter.config.loading import Check, combine, hostname
from exporter.config.schema import Config, changes
from exporter.config.yaml_text import ConfigError, read

POLL = 1.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """
    A valid new text.

    Attributes:
        config: the config that is to be in force now: the live keys as written, all others as they were.
        applied: dotted keys that differ from before, and are in `config`.
        needs_restart: dotted keys that differ from the config in force, and wait for a restart.
    """

    config: Config
    applied: tuple[str, ...]
    needs_restart: tuple[str, ...]

    @property
    def message(self) -> str:
        """One sentence for people."""
        parts = []
        if self.applied:
            parts.append(f"applied {', '.join(self.applied)}")
        if self.needs_restart:
            parts.append(f"restart the daemon to apply {', '.join(self.needs_restart)}")
        return "; ".join(parts) or "nothing differs from what is in force"


async def settled(look: Callable[[], T], poll: float = POLL) -> AsyncIterator[T]:
    """
    Yield the result of `look` whenever it has changed and then stays the same for one poll.

    The first result counts as a change.
    """
    reported: list[T] = []
    previous = look()
    while True:
        await asyncio.sleep(poll)
        current = look()
        if current == previous and [current] != reported:
            reported = [current]
            yield current
        previous = current


async def reloads(
    arguments: Arguments, running: Config, *, poll: float = POLL, also: Check = lambda _: ()
) -> AsyncIterator[Reloaded | ConfigError]:
    """
    Watch the config file of `arguments`, if there is one, and yield the effect of each change.

    `running` is the result of `load`; a change between `load` and this call is found, too. A text that equals the
    config in force is reported only after one that did not.
    """
    if arguments.config_file is None:
        return
    file = arguments.config_file

    def look() -> bytes | str:
        try:
            return read(file)
        except ConfigError as error:
            return error.what  # compared as the text would be

    quiet: Reloaded | None = Reloaded(running, (), ())
    async for text in settled(look, poll):
        change = _judge(text, arguments, running, also)
        if isinstance(change, Reloaded):
            running = change.config
            if change == quiet:
                continue
            quiet = replace(change, applied=())
        else:
            quiet = None
        yield change


def _judge(text: bytes | str, arguments: Arguments, running: Config, also: Check) -> Reloaded | ConfigError:
    if isinstance(text, str):
        return ConfigError(text, fix="make the file readable for the daemon")
    try:
        return Reloaded(*changes(running, combine(arguments, text, hostname(), also)))
    except ConfigError as error:
        return error
