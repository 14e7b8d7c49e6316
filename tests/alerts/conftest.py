"""What tests of the chart's rules want: Helm."""

from deploy.conftest import helm

__all__ = ["helm"]
