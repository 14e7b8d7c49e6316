"""
`gpusteward check`: report whether the daemon can do what these flags and this config ask for on this node.

What comes in: the flags of the daemon. What goes out: a line for each check on standard output, and the exit code.
"""

import argparse
import asyncio
import json
import os
import sys
from functools import partial

from enforcer.commands import Commands, on_terminal, put, unwritten
from exporter.config.arguments import add_flags, chosen

PROGRAM = "gpusteward check"
USED = (
    *("--node-name", "--node.kubelet-root", "--node.host-root", "--node.trust-pid-namespace", "--devices"),
    *("--names.source", "--names.kubeconfig", "--names.file"),
    *("--mode", "--web.listen-address", "--web.config.file"),
)
"""The flags that choose the checks. The others are only checked for errors."""


def add(commands: Commands) -> None:
    """Add the sub-command to the program's."""
    parser = commands.add_parser(
        "check",
        help="check everything that the daemon needs on this node, and how to fix what is missing",
        usage="%(prog)s [FLAGS]",
        description="Check everything that the daemon needs on this node: driver, kubelet, API server, rights and "
        "configuration. Each check prints one line, and a line with its fix where it did not pass. Nothing is changed. "
        "Every flag of `gpusteward run` is accepted; the flags below change what is checked. "
        "Exit code: 0 when the daemon can do what is configured, 1 when it cannot, 2 for wrong usage or configuration.",
        epilog="example: kubectl exec -n gpusteward ds/gpusteward -- gpusteward check",
        allow_abbrev=False,
    )
    add_flags(parser, USED)
    parser.add_argument(
        "--json",
        action="store_true",
        help="print the result as JSON: {exit_code, checks: [{check, verdict, message, fix}]}",
    )
    parser.set_defaults(run=run)


def run(namespace: argparse.Namespace) -> int:
    """Check, print, and return the exit code."""
    from enforcer.actions.evict.admission_probe import OwnPod  # noqa: PLC0415
    from enforcer.runtime.daemon import POD_NAME, POD_NAMESPACE  # noqa: PLC0415
    from enforcer.runtime.policy_config import impossible  # noqa: PLC0415
    from enforcer.runtime.preflight import beyond, mode_rights  # noqa: PLC0415
    from exporter.check.lines import exit_code, render  # noqa: PLC0415  (with the probes come driver, HTTP and more)
    from exporter.check.probe import preflight  # noqa: PLC0415

    arguments = chosen(namespace, os.environ)
    in_a_pod = "KUBERNETES_SERVICE_HOST" in os.environ
    own = OwnPod(os.environ.get(POD_NAMESPACE, ""), os.environ.get(POD_NAME, ""))
    wanted = partial(beyond, in_a_pod=in_a_pod, own=own)
    lines = asyncio.run(preflight(arguments, in_a_pod=in_a_pod, also=impossible, more=mode_rights, beyond=wanted))
    code = exit_code(lines)
    if namespace.json:
        checks = [
            {"check": line.check, "verdict": line.verdict, "message": line.message, "fix": line.fix} for line in lines
        ]
        text = json.dumps({"exit_code": code, "checks": checks}, indent=2) + "\n"
    else:
        text = render(lines, colour=on_terminal(sys.stdout) and "NO_COLOR" not in os.environ)
    try:
        put(text)
    except OSError as error:
        return unwritten(PROGRAM, error) or code
    return code
