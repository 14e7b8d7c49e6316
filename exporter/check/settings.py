"""
What the operator set: the config, and the daemon's own HTTP server.

What comes in: whether it could be used. What goes out: a line for each.
"""

from dataclasses import dataclass

from exporter.check.lines import CONFIG, WEB_CONFIG, Failed, Line, Verdict


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon is to listen. `refused`: why it cannot; `served_by`: which server answers there instead."""

    address: str
    refused: str | None = None
    served_by: str | None = None
    fix: str = ""


def config(file: str | None) -> Line:
    """Judge a config that was read."""
    return Line(CONFIG, Verdict.OK, f"{file} is valid" if file else "no file; defaults, flags and environment are used")


def refused_config(why: str, fix: str = "") -> Line:
    """Judge a config that was refused: all else depends on it."""
    return Line(CONFIG, Verdict.FAIL, why, fix)


def web_address(address: Address | Failed) -> Line:
    """Judge whether the daemon could listen."""
    if isinstance(address, Failed):
        return Line("web address", Verdict.FAIL, address.message, address.fix)
    if address.refused is None:
        return Line("web address", Verdict.OK, f"{address.address} is free")
    if address.served_by == "gpusteward":
        return Line("web address", Verdict.OK, f"{address.address} is served by a gpusteward that is running")
    return Line("web address", Verdict.FAIL, address.refused, address.fix)


def web_config(file: str, security: str | Failed) -> Line:
    """Judge the web config by what it protects with."""
    if isinstance(security, Failed):
        return Line(WEB_CONFIG, Verdict.FAIL, security.message, security.fix)
    return Line(WEB_CONFIG, Verdict.OK, f"{file} loads: {security}")
