"""Counts of commands that ask a Prometheus: none, or fewer than none, is refused before anything is asked."""

from __future__ import annotations

import pytest

from enforcer.cli import main


@pytest.mark.parametrize(("command", "option"), [("advise", "--min-days"), ("report", "--top")])
@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5"])
def test_a_count_is_at_least_one(command: str, option: str, text: str, capfd: pytest.CaptureFixture[str]) -> None:
    """The error names the option, what was expected, and what was found."""
    with pytest.raises(SystemExit) as ended:
        main([command, "--prometheus", "http://127.0.0.1:9", option, text])
    assert ended.value.code == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert f"{option}: expected a whole number of at least 1, got {text!r}" in err
