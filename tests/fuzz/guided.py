"""
One target, guided by coverage: a process of its own, because the guide changes the code that is imported.

What comes in: a target, libFuzzer's arguments (folders of inputs, the number of runs, a seed). What goes out: new
inputs in the first folder, and an exit status that is not 0 where a promise was broken.

Atheris counts the branches of our own packages, and sees what comparisons look for. Its view of regular expressions
is not used, because atheris 3.0 knows no `match` with a start. It is no part of `requirements-dev.lock`, because it has
wheels for some versions of Python alone. `make fuzz` installs it.
"""

import sys

import atheris

from fuzz.targets import LONGEST, check_of, words

SECONDS = 30
"""Of one input, on a busy machine; they take milliseconds."""
MEMORY = 768
"""MiB of the process; it takes some 100."""


def main(arguments: list[str]) -> None:
    """Run a target; libFuzzer ends the process."""
    program, name, *flags = arguments
    atheris.enabled_hooks.add("str")
    with atheris.instrument_imports(include=["exporter", "enforcer"], enable_loader_override=False):
        check = check_of(name)
    usual = [
        f"-max_len={LONGEST.get(name, 1024)}",
        f"-dict={words(name)}",
        f"-timeout={SECONDS}",
        f"-rss_limit_mb={MEMORY}",
        "-print_final_stats=1",
        "-verbosity=0",
        "-len_control=20",
    ]
    atheris.Setup([program, *usual, *flags], check)
    atheris.Fuzz()


if __name__ == "__main__":
    main(sys.argv)
