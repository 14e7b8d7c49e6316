"""The daemon's document is read as it is written, and nothing else is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from enforcer.messages import document as policy_document
from enforcer.policy.history import Opened
from enforcer.policy.vocabulary import Breaker
from exporter.api import schema as read
from exporter.api.schema import Document
from exporter.top.fetch import NotOursError, parse
from exporter.top.table import table
from golden.everything import everything
from policy.scenes import BEGIN, GREEDY, MEEK, UNHURRIED, WALL, Play
from serving.node import busy
from serving.table import served, shown


def test_what_is_read_is_what_is_written() -> None:
    """Each field that is read here is one that a daemon writes, under this name."""
    found = json.loads(served(everything()))
    play = Play(UNHURRIED)
    verdict = replace(play.step(GREEDY, MEEK), breakers={Breaker.ATTRIBUTION: Opened(0.0, "lives on")})
    policy = policy_document.summary(verdict, (), WALL - BEGIN)
    written: list[tuple[type[msgspec.Struct], Iterable[dict[str, Any]]]] = [
        (read.Document, [found]),
        (read.Gpu, [one for one in found["gpus"] if one["up"]]),
        (read.Xid, [xid for one in found["gpus"] for xid in one["xid_errors"] or ()]),
        (read.Device, found["devices"]),
        (read.Container, found["containers"]),
        (read.Limit, found["limits"]),
        (read.Fault, found["faults"]),
        (read.Policy, [policy]),
        (read.Standing, policy["standings"]),
        (read.Breaker, policy["breakers"]),
    ]
    for struct, objects in written:
        there = list(objects)
        assert there, struct
        assert set(struct.__struct_fields__) <= set(there[0]), struct
    (handed, *_) = found["allocations"]
    assert {"namespace", "pod", "container", "uuid", "gpu_instance"} <= set(handed)
    assert isinstance(parse(json.dumps({**found, "policy": policy}).encode()), Document)


def test_a_newer_daemon_may_say_more_and_an_older_one_less() -> None:
    """Within version 1 fields are added: unknown ones are passed over, missing ones are unknown."""
    found = json.loads(served(busy()))
    more = {**found, "new": [1], "gpus": [{**one, "new": {}} for one in found["gpus"]]}
    assert parse(json.dumps(more).encode()) == parse(served(busy()))
    for name in ("limits", "allocations", "policy", "faults", "pid_domain_proven", "program"):
        del found[name]
    assert len(table(parse(json.dumps(found).encode())).rows) == len(shown(busy()).rows) - 1, "the idle one is unknown"


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"<html>hello", "something else"),
        (b"{}", "something else"),
        (b'{"version": 1, "node": "n"}', "something else"),
        (b'{"version": 2, "node": "n"}', "version 2 of the document, and this program reads 1"),
        (b"[" * 100_000, "something else"),
        (b'{"version": 1, "node": "n", "new": ' + b"[" * 100_000, "something else"),
        (served(busy()).replace(b'"power_watts":412.3', b'"power_watts":1e400'), "something else"),
        (served(busy()).replace(b'"age_seconds":1.0', b'"age_seconds":-1e300'), "something else"),
        (re.sub(rb'"memory_used_bytes":\d+', b'"memory_used_bytes":' + b"9" * 400, served(busy())), "something else"),
    ],
    ids=range(9),
)
def test_what_is_no_snapshot(body: bytes, told: str) -> None:
    """Whatever else it is, it is refused, in words; also numbers that no node can have."""
    with pytest.raises(NotOursError, match=told):
        parse(body)
