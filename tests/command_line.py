"""The parser of each command of `gpusteward`."""

import argparse

from enforcer.cli import parser


def commands() -> dict[str, argparse.ArgumentParser]:
    """Name to parser."""
    (action,) = (one for one in parser()._actions if isinstance(one, argparse._SubParsersAction))
    return dict(action.choices)
