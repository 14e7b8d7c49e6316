"""
Validators of JSON schemas and of Kubernetes' objects.

In: an object. Out: nothing, or an error of the validator. Law: they are imported when they are first used, without
their grammars of addresses: those take 1.3 s of CPU in each process, for formats that are not asked for.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from functools import cache
from typing import Any


class RefusedError(Exception):
    """A schema does not allow the object; the message says where."""


def validate(value: object, schema: Mapping[str, Any]) -> None:
    """Compare a value with a JSON schema."""
    validator = _validator(json.dumps(schema))
    from jsonschema.exceptions import best_match

    if error := best_match(validator.iter_errors(value)):
        raise RefusedError(str(error))


def known_to_kubernetes(value: Mapping[str, Any], version: str) -> bool:
    """Compare an object with the schema of this version of Kubernetes, strictly, and say whether it has one."""
    _import_quickly()
    import kubernetes_validate

    try:
        return bool(kubernetes_validate.validate(value, version, strict=True) == version.rpartition(".")[0])
    except kubernetes_validate.ValidationError as error:
        raise RefusedError(str(error)) from error


@cache
def _validator(schema: str) -> Any:
    """Make the validator of a schema, which is checked itself."""
    _import_quickly()
    from jsonschema.validators import validator_for

    known = json.loads(schema)
    made = validator_for(known)
    made.check_schema(known)
    return made(known)


def _import_quickly() -> None:
    sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # "not there", as the import system has it
