"""
What the operator set: the config, and the daemon's own HTTP server.

What comes in: whether it could be used. What goes out: a line for each.
"""

from dataclasses import dataclass

from exporter.check.lines import CONFIG, WEB_CONFIG, Failed, Line, Verdict


@dataclass(frozen=True, slots=True)
class Address:
    """Where the daemon is to listen. `refused`: why that is not possible; `served_by`: who answers there instead."""

    address: str
    refused: str | None = None
    served_by: str | None = None


def config(file: str | None) -> Line:
    """Judge a config that was read."""
    return Line(CONFIG, Verdict.OK, f"{file} is valid" if file else "no file: defaults, flags and environment")


def refused_config(why: str) -> Line:
    """Judge a config that was refused: all else depends on it."""
    return Line(CONFIG, Verdict.FAIL, why)


def web_address(address: Address | Failed) -> Line:
    """Judge whether the daemon could listen."""
    if isinstance(address, Failed):
        return Line("web address", Verdict.FAIL, address.message)
    if address.refused is None:
        return Line("web address", Verdict.OK, f"{address.address} is free")
    if address.served_by == "gpusteward":
        return Line("web address", Verdict.OK, f"{address.address} is served by a gpusteward that runs already")
    return Line("web address", Verdict.FAIL, address.refused)


def web_config(file: str, security: str | Failed) -> Line:
    """Judge the web config by what it protects with."""
    if isinstance(security, Failed):
        return Line(WEB_CONFIG, Verdict.FAIL, security.message)
    return Line(WEB_CONFIG, Verdict.OK, f"{file} loads: {security}")
