"""
Validators of JSON schemas and of Kubernetes' objects.

In: an object. Out: nothing, or an error of the validator. Law: they are imported when they are first used.
"""

from __future__ import annotations

import json
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
    import kubernetes_validate

    try:
        return bool(kubernetes_validate.validate(value, version, strict=True) == version.rpartition(".")[0])
    except kubernetes_validate.ValidationError as error:
        raise RefusedError(str(error)) from error


@cache
def _validator(schema: str) -> Any:
    """Make the validator of a schema, which is checked itself."""
    from jsonschema.validators import validator_for

    known = json.loads(schema)
    made = validator_for(known)
    made.check_schema(known)
    return made(known)
