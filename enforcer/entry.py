"""
The outermost function of `gpusteward`.

What comes in: the command line of the process. What goes out: its exit code; 130 after Ctrl-C.

The rule: it imports the program only when it is called, because Ctrl-C may come while Python imports.
"""


def main() -> int:
    """Run the program."""
    try:
        from enforcer import cli  # noqa: PLC0415  (its import takes the time in which Ctrl-C may come)

        return cli.main()
    except KeyboardInterrupt:
        return 130
