"""Fake vendor libraries for the tests of this folder."""

from libraries.fixtures import install, libraries_build, sources

__all__ = ["install", "libraries_build", "sources"]
