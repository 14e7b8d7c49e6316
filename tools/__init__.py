"""Generators of documentation pages. They are not part of the wheel."""
