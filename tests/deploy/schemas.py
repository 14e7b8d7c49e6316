"""
Validators of JSON schemas and of Kubernetes' objects.

In: an object. Out: nothing, or an error of the validator. Law: they are imported when they are first used. Their
grammars of addresses take 1.3 s of CPU, in each process that collects tests.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class RefusedError(Exception):
    """A schema does not allow the object; the message says where."""


def validate(value: object, schema: Mapping[str, Any]) -> None:
    """Compare a value with a JSON schema."""
    import jsonschema

    try:
        jsonschema.validate(value, schema)
    except jsonschema.ValidationError as error:
        raise RefusedError(str(error)) from error


def known_to_kubernetes(value: Mapping[str, Any], version: str) -> bool:
    """Compare an object with the schema of this version of Kubernetes, strictly, and say whether it has one."""
    import kubernetes_validate

    try:
        return bool(kubernetes_validate.validate(value, version, strict=True) == version.rpartition(".")[0])
    except kubernetes_validate.ValidationError as error:
        raise RefusedError(str(error)) from error
