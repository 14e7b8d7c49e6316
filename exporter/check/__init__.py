"""
What the answers of a preflight mean: whether the daemon can do here what it is asked to.

What comes in: what the probes found, as data. What goes out: lines, each with a verdict, what was found and, where that
is not good, what to do; an exit code; text.

The law: **fail** is what keeps the daemon from starting, or its rounds from ever being complete, or is a source that
the config asks for and that does not answer, or a right that the mode asks for and that is not granted. **warn** is
what it works without, and shows less. Who could not be asked is not called good.
"""

from exporter.check.cluster import (
    ApiServer,
    NodeObject,
    api_server,
    kubelet,
    log_links,
    mode_rights,
    names,
    node_name,
    rights,
)
from exporter.check.lines import Failed, Line, Verdict, exit_code, render
from exporter.check.node import CgroupView, PidDomain, cgroups, driver, pid_domain, recording, vendors
from exporter.check.settings import Address, config, refused_config, web_address, web_config

__all__ = [
    "Address",
    "ApiServer",
    "CgroupView",
    "Failed",
    "Line",
    "NodeObject",
    "PidDomain",
    "Verdict",
    "api_server",
    "cgroups",
    "config",
    "driver",
    "exit_code",
    "kubelet",
    "log_links",
    "mode_rights",
    "names",
    "node_name",
    "pid_domain",
    "recording",
    "refused_config",
    "render",
    "rights",
    "vendors",
    "web_address",
    "web_config",
]
