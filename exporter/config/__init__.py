"""
What the operator wants: flags over environment over one YAML file, as one frozen `Config`, or a `ConfigError`.

`arguments` turns a command line into data, `reading` turns text into data, `schema` says what data is allowed,
`loading` puts them together, `reload` watches the file.
"""

from exporter.config.arguments import Arguments, parse_arguments
from exporter.config.catalogue import catalogue_of, options_of
from exporter.config.loading import Check, load
from exporter.config.policy import Policy, tolerance_of
from exporter.config.reload import Reloaded, reloads
from exporter.config.schema import Config, Limits, Log, Names, Node, Sampling, Web, source_of_names
from exporter.config.yaml_text import ConfigError

__all__ = [
    "Arguments",
    "Check",
    "Config",
    "ConfigError",
    "Limits",
    "Log",
    "Names",
    "Node",
    "Policy",
    "Reloaded",
    "Sampling",
    "Web",
    "catalogue_of",
    "load",
    "options_of",
    "parse_arguments",
    "reloads",
    "source_of_names",
    "tolerance_of",
]
