"""
The chart's values and their schema, without Helm: what they say of the daemon's config is what the daemon says.

In: values.yaml, values.schema.json, the daemon's own schema. Out: nothing. Law: a key that the
daemon has not is refused by the chart, a key that it has is not.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest

import plain_yaml
from deploy.chart import CHART, PLATFORMS, VARIANTS, variant
from deploy.schemas import validate
from documented import over
from exporter.config import Config
from exporter.config.arguments import Arguments
from exporter.config.loading import combine
from exporter.config.schema import found_at
from exporter.config.values import Bytes, decode

SCHEMA = json.loads((CHART / "values.schema.json").read_text())
VALUES = plain_yaml.load((CHART / "values.yaml").read_text())


def keys(kind: type[msgspec.Struct], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each key of the daemon's config, dotted, with its type."""
    for name, hint in get_type_hints(kind).items():
        if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
            yield from keys(hint, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", hint


def allowed(schema: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Each key that the chart's schema admits, with what is said of it."""
    assert schema["additionalProperties"] is False, prefix
    for name, one in schema["properties"].items():
        if "properties" in one:
            yield from allowed(one, f"{prefix}{name}.")
        elif one != {"$ref": "#/$defs/removed"}:
            yield f"{prefix}{name}", one


def test_the_schema_knows_the_keys_of_the_daemon() -> None:
    """All of them, no other, and of words exactly the words."""
    of_daemon, of_chart = dict(keys(Config)), dict(allowed(SCHEMA["$defs"]["config"]))
    assert set(of_chart) == set(of_daemon)
    words = {key: set(get_args(hint)) for key, hint in of_daemon.items() if get_origin(hint) is Literal}
    assert len(words) >= 8
    assert {key: set(of_chart[key]["enum"]) - {False} for key in words} == words  # `off` without quotes


def test_the_defaults_are_those_of_the_daemon() -> None:
    """What values.yaml writes out for the chart's own use changes nothing for the daemon."""
    written = VALUES["config"]
    bare = combine(Arguments(), b"", "gpu-node")
    with_values = combine(Arguments(), json.dumps(written).encode(), "gpu-node")
    assert found_at(bare, "policy.journal") is None, "its default is in enforcer.journal_file"
    assert (
        msgspec.structs.replace(with_values, policy=msgspec.structs.replace(with_values.policy, journal=None)) == bare
    )
    assert written["policy"]["mode"] == "observe"


def test_the_journal_is_where_the_daemon_looks_for_it() -> None:
    """The folder that the chart mounts is the folder of the daemon's default."""
    from enforcer.journal.file import DEFAULT

    assert VALUES["config"]["policy"]["journal"] == str(DEFAULT)


def test_each_value_is_in_the_schema() -> None:
    """No value without a rule, and no rule without a value, but for the condition of a chart above."""
    assert set(SCHEMA["properties"]) == {*VALUES, "enabled"}
    for name, rule in SCHEMA["properties"].items():
        rule = SCHEMA["$defs"][rule["$ref"].rpartition("/")[2]] if "$ref" in rule else rule  # noqa: PLW2901
        if "properties" in rule and name != "config" and VALUES[name]:  # some are empty by default
            assert set(rule["properties"]) == set(VALUES[name]), name


@pytest.mark.parametrize("name", [*VARIANTS, *PLATFORMS])
def test_a_variant_keeps_to_the_schema(name: str) -> None:
    """Laid over the defaults, as Helm does it."""
    validate(over(VALUES, plain_yaml.load(variant(name).read_text())), SCHEMA)


BYTES = {
    "256Mi": 256 * 2**20, "0.5Gi": 2**29, ".5M": 500_000, "1.k": 1000, "1E": 10**18, "1Ei": 2**60,
    "5000": 5000, "1e3": 1000, "2E+3": 2000,
}  # fmt: skip
NO_BYTES = ("0.5", "512m", "1.5e0", "0.5e0", ".5E1", "1.e3", "1e-3", "1e", "-1Ki", "+1Ki", "256MB")


@pytest.mark.parametrize(("text", "number"), (BYTES | dict.fromkeys(NO_BYTES)).items())
def test_the_chart_takes_the_bytes_that_the_daemon_takes(text: str, number: int | None) -> None:
    """Whole bytes, or a unit: a part of a byte, or a part of a power of ten, is a typing error to both."""
    helpers = (CHART / "templates" / "_helpers.tpl").read_text()
    (form,) = re.findall(r"config\.policy\.tolerance\..* form: '([^']+)'", helpers)
    assert (re.search(form, text) is not None) == (number is not None)
    if number is None:
        with pytest.raises(ValueError, match="not bytes"):
            decode(Bytes, text)
    else:
        assert decode(Bytes, text) == number
