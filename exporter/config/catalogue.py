"""
The operator's catalogue of limits: the package's catalogue with the operator's own rows on top, and the options.

What comes in: the section `limits`. What goes out: the catalogue, or `ConfigError` with the place; the options.
"""

from exporter.config.schema import Limits
from exporter.config.yaml_text import ConfigError
from exporter.limits import Options
from exporter.limits.loading import CatalogueError, with_own
from exporter.limits.rows import Catalogue


def catalogue_of(limits: Limits, source: str = "configuration", systems: str = "") -> Catalogue:
    """
    Put the operator's rows on top of the package's. Raises ConfigError, also for unknown systems.

    `source` names the file of the rows; `systems` names the place where the systems were chosen, if that was elsewhere.
    """
    try:
        catalogue = with_own(limits.rows, "limits.rows")
    except CatalogueError as error:
        raise ConfigError(f"{source}: {error}") from error
    if unknown := sorted((limits.systems.names or frozenset()) - {system.name for system in catalogue}):
        raise ConfigError(
            f"{systems or f'{source}: limits.systems'}: no system is called {unknown[0]}",
            fix=f"use auto, or names of docs/systems.md: {', '.join(sorted(system.name for system in catalogue))}",
        )
    return catalogue


def options_of(limits: Limits) -> Options:
    """Make the resolver's options from the section."""
    return Options(limits.systems.names, limits.fair_share, mps_container=limits.mps_scope == "container")
