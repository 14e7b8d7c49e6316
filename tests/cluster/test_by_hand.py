"""A cluster for a person: what stops it, and what it prints to try. No cluster is started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster import __main__ as by_hand
from cluster import requirements

SIGNALS = signal.SIGINT, signal.SIGTERM


@pytest.fixture
def ignored(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Ignore both signals, as a shell does with SIGINT of a command that it starts in the background."""
    before = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    monkeypatch.setattr(requirements, "missing", lambda **_: [])
    monkeypatch.setattr(by_hand, "program", lambda name: Path("/tools") / name)
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


class Bed:
    """A bed that is ready at once."""

    kubeconfig = folder = "/bed"

    def __init__(self, **_: object) -> None:
        self.node = type("Node", (), {"containerd": None, "inside": ("nsenter",)})

    def start(self) -> None:
        """Be ready."""

    def stop(self) -> list[str]:
        """Leave nothing to remove."""
        return []


@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_stops_it_also_in_the_background(
    ignored: None,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    """Both signals end it in order, whatever the shell that started it has set."""

    def interrupted() -> None:
        os.kill(os.getpid(), number)
        raise AssertionError("the signal was ignored")

    monkeypatch.setattr(by_hand, "Bed", Bed)
    monkeypatch.setattr(signal, "pause", interrupted)
    monkeypatch.setattr("sys.argv", ["cluster"])
    assert by_hand.main() == 0
    printed = capsys.readouterr().out
    assert "stopping ..." in printed
    assert printed.index("kubectl wait --for=condition=Ready pod/one") < printed.index("kubectl exec one")
    shared = [part for part in printed.split("kubectl run ") if "gpu.shared" in part and "WORKLOAD" in part]
    assert [(part.split()[0], "3GiB" in part, "5GiB" in part) for part in shared] == [
        ("two", True, False),
        ("three", False, True),
    ]
