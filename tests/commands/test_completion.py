"""Shell completion: the script of bash is sourced and asked by a real bash; the others are looked through."""

import subprocess
from contextlib import redirect_stdout
from io import StringIO

import pytest

from command_line import commands
from enforcer.cli import main
from enforcer.commands import check, record
from exporter.config.arguments import ALL

ASK = """
source /dev/stdin <<< "$SCRIPT"
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMP_LINE="$*" COMP_POINT=${#COMP_LINE}
name=$(complete -p gpusteward) name=${name##*-F } name=${name%% *}
"$name" gpusteward "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD - 1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""
"""What bash does at a tab."""


@pytest.fixture(scope="module")
def script() -> str:
    """The completion script of bash, printed by the command itself."""
    with redirect_stdout(StringIO()) as made:
        assert main(["completion", "bash"]) == 0
    return made.getvalue()


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["gpusteward", "ch"], {"check"}),
        (["gpusteward", "close", ""], {"attribution", "blast_radius", "internal", "journal"}),
        (["gpusteward", "close", "--"], {"--help", "--by", "--config"}),
        (["gpusteward", "run", "--mode", ""], {"off", "observe", "warn", "dry-run", "enforce"}),
        (["gpusteward", "run", "--log.level", "w"], {"warning"}),
        (["gpusteward", "run", "--web.l"], {"--web.listen-address"}),
        (["gpusteward", "check", "--config", "/etc/host"], {"/etc/hosts"}),
    ],
)
def test_bash_offers_what_the_parser_takes(script: str, words: list[str], offered: set[str]) -> None:
    """Commands, listed flags, words of a flag, and files."""
    done = subprocess.run(
        ["bash", "-c", ASK, "bash", *words], env={"SCRIPT": script}, capture_output=True, text=True, check=True
    )
    assert offered <= set(done.stdout.split())
    assert all(offer.startswith(words[-1]) for offer in done.stdout.split())


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_the_other_shells_know_each_command(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each command and a flag with its help."""
    assert main(["completion", shell]) == 0
    made = capsys.readouterr().out
    assert all(word in made for word in ("preview", "blast_radius", "listen-address", "enforce"))


@pytest.mark.parametrize(
    ("command", "used"),
    [("check", set(check.USED)), ("close", set()), ("record", ALL - record.UNUSED), ("run", set(ALL))],
)
def test_the_help_of_a_command_lists_the_flags_that_it_uses(command: str, used: set[str]) -> None:
    """Of the daemon's flags, and an example; the others are accepted, but not listed."""
    told = commands()[command].format_help()
    assert {flag for flag in ALL if f"  {flag}" in told} == used
    assert "\nexample: " in told
