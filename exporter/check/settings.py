"""
Checks of the operator's settings: the config, and the daemon's own HTTP server.

What comes in: whether each could be used. What goes out: a line for each.
"""

from dataclasses import dataclass

from exporter.check import remedies
from exporter.check.lines import CONFIG, WEB_CONFIG, Failed, Line, Verdict

_ADDRESS = "end the program that listens there, or set web.listen_address to another address"


@dataclass(frozen=True, slots=True)
class Address:
    """
    The address that the daemon would listen on.

    `refused`: why it cannot; `served_by`: the server that answers there.
    """

    address: str
    refused: str | None = None
    served_by: str | None = None
    fix: str = ""


def config(file: str | None) -> Line:
    """Judge a valid config."""
    return Line(CONFIG, Verdict.OK, f"{file} is valid" if file else "no file; defaults, flags and environment are used")


def refused_config(why: str, fix: str = "") -> Line:
    """Judge a refused config. No other check is possible then."""
    return Line(CONFIG, Verdict.FAIL, why, fix or remedies.CONFIG)


def web_address(address: Address | Failed) -> Line:
    """Judge whether the daemon could listen."""
    if isinstance(address, Failed):
        return Line("web address", Verdict.FAIL, address.message, address.fix or _ADDRESS)
    if address.refused is None:
        return Line("web address", Verdict.OK, f"{address.address} is free")
    if address.served_by == "gpusteward":
        return Line("web address", Verdict.OK, f"{address.address} is served by a gpusteward that is running")
    return Line("web address", Verdict.FAIL, address.refused, address.fix or _ADDRESS)


def web_config(file: str, security: str | Failed) -> Line:
    """Judge the web config by the protections that it sets."""
    if isinstance(security, Failed):
        return Line(WEB_CONFIG, Verdict.FAIL, security.message, security.fix or remedies.CONFIG)
    return Line(WEB_CONFIG, Verdict.OK, f"{file} loads: {security}")
