"""
The operator's settings as one frozen `Config`, or a `ConfigError`: flags over environment over one YAML file.

`arguments` reads the command line, `yaml_text` the file. `schema` defines the keys, `loading` joins all of it, and
`reload` watches the file.
"""

from exporter.config.arguments import Arguments, parse_arguments
from exporter.config.catalogue import catalogue_of, options_of
from exporter.config.loading import Check, load, start
from exporter.config.policy import Policy, tolerance_of
from exporter.config.reload import Reloaded, reloads
from exporter.config.schema import Config, Limits, Log, Names, Node, Sampling, Web, source_of_names, switched_off
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
    "start",
    "switched_off",
    "tolerance_of",
]
