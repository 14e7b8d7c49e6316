"""The catalogue is whole: nothing is in it that no pod of a fixture uses, written as its system writes it."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from exporter.limits import LeafDevice, Options, Resolution, resolve
from exporter.limits.decoders import decode
from exporter.limits.decoding import DeclarationError, Scene
from exporter.limits.loading import builtin
from exporter.limits.node_devices import devices_of
from exporter.limits.row_texts import readings
from exporter.limits.rows import Row, What
from exporter.model import DeclaredPod, Sharing
from exporter.objects.manifest import Manifest

FIXTURES = Path(__file__).parent / "fixtures"

Case = tuple[Manifest, DeclaredPod, tuple[Resolution, ...]]


@pytest.fixture(scope="module")
def cases(gpus: Callable[..., tuple[LeafDevice, ...]], manifest: Callable[[str], Manifest]) -> list[Case]:
    """Resolve every pod of every fixture: on the devices of its node, on plain devices, on replicated ones."""
    plain = gpus(2**36, 2**36)
    replicated = tuple(replace(each, sharing=Sharing.TIME_SLICING, replicas=4) for each in plain)

    def resolved() -> Iterator[Case]:
        for found in (manifest(path.stem) for path in sorted(FIXTURES.glob("*.yaml"))):
            node = found.nodes[0] if found.nodes else None
            told = devices_of(node) if node else ()
            for pod in found.pods:
                yield (
                    found,
                    pod,
                    tuple(
                        resolve(pod, node, devices, builtin(), claims=found.claims, options=Options(fair_share=True))
                        for devices in (told, plain, replicated)
                    ),
                )

    return list(resolved())


def test_every_system_has_a_pod(cases: list[Case]) -> None:
    """Every system decides the limit of some pod."""
    told = {limit.system for _, _, answers in cases for answer in answers for limit in answer.limits}
    assert {system.name for system in builtin()} - told == set()


def test_every_row_has_a_pod(cases: list[Case]) -> None:
    """Every amount is resolved for some pod, or reported as not declared; every count and device is read."""
    used: set[tuple[str, Row]] = set()
    for found, pod, answers in cases:
        limits = [limit for answer in answers for limit in (*answer.limits, *answer.elsewhere)]
        candidates = [candidate for limit in limits for candidate in limit.candidates]
        amounts = [c for c in candidates if c.grant or c.bytes is not None or c.ratio is not None]
        used |= {(c.system, c.row) for c in amounts if c.row}
        told = {candidate.system for candidate in candidates}
        for system in (system for system in builtin() if system.name in told):
            scene = Scene(system, pod, claims=found.claims)
            used |= {(system.name, row) for row in system.rows if row.what in BESIDE and any(_read(row, scene))}
    unused = [(system.name, row.key) for system in builtin() for row in system.rows if (system.name, row) not in used]
    assert unused == []


BESIDE = {What.COUNT, What.DEVICE}
"""What stands beside the amounts."""


def _read(row: Row, scene: Scene) -> Iterator[bool]:
    for text, asked in readings(scene, row):
        with suppress(DeclarationError):
            yield bool(decode(text, asked))


def test_bytes_or_a_reason(cases: list[Case]) -> None:
    """A pod of a fixture has bytes on each device, or each candidate says why it gave none."""
    for _, pod, answers in cases:
        for limit in (limit for answer in answers for limit in answer.limits):
            silent = [c.name for c in limit.candidates if c.what is not What.COMPUTE and not c.excluded]
            assert limit.bytes or not silent, pod.name
