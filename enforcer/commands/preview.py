"""
`gpusteward preview`: what mode `enforce` would do to the pods of a node.

What comes in: the daemon's address. What goes out: a table or JSON on standard output, and the exit code: 0 shown,
1 when the daemon does not answer, 2 on wrong usage.

The rule: it only asks. The daemon computes the preview, whatever its mode is.
"""

import argparse
import asyncio

from enforcer.commands import Commands, add_url, chosen_daemon, put, unwritten, wrong

PROGRAM = "gpusteward preview"
PATH = "/api/v1/preview"


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "preview",
        help="show the pods over their limit, and what mode enforce would do about each",
        description="Show what mode enforce would do on a node, in any mode of its daemon: each pod over its limit, "
        "how much of its grace is used, and the next action or the reason why there is none. Exit code: 0, 1 when the "
        "daemon does not answer, 2 for wrong usage.",
        epilog="example: kubectl exec -n gpusteward ds/gpusteward -- gpusteward preview",
        allow_abbrev=False,
    )
    add_url(parser)
    parser.add_argument("--json", action="store_true", help="print the answer of the daemon as JSON")
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Ask and show; return the exit code."""
    from exporter.api.client import OK, AskError, UrlError, asked, refused, stranger  # noqa: PLC0415  (HTTP)
    from exporter.top import forecast  # noqa: PLC0415  (msgspec)

    try:
        daemon = chosen_daemon(namespace)
        status, body = asyncio.run(asked(daemon, PATH))
        if status != OK:
            raise refused(daemon, status, body, "previews nothing")
        try:
            table = forecast.text(forecast.parse(body))
        except (ValueError, RecursionError) as error:
            raise stranger(daemon, "answers something else than a preview") from error
        put(f"{body.decode().rstrip()}\n" if namespace.json else table)
    except UrlError as error:
        return wrong(PROGRAM, error)
    except AskError as error:
        return wrong(PROGRAM, error, 1)
    except OSError as error:
        return unwritten(PROGRAM, error)
    except KeyboardInterrupt:
        return 130
    return 0
