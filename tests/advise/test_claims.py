"""`gpusteward advise` against a real Prometheus that has pods which share a ResourceClaim."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from advise.histories import Box, samples
from advise.test_installations import Ask, asking, found
from exporter.advise.advice import advise as advised
from exporter.advise.observed import observed
from exporter.advise.series import Day, Series
from report.week import GIB, blocks


def holding(workload: str, pod: str, claim: str, held: float) -> Box:
    """A pod that holds so much all the time."""
    return Box(workload, pod=pod, claim=claim, held=lambda _: held)


BOXES = (
    *(holding("rank", f"rank-{number}", "shared", 9 * GIB) for number in range(3)),
    holding("alone", "alone-0", "own", 9 * GIB),
)
"""Three pods of one Deployment share a claim; as with the real daemon, they have no declaration of their own."""


@pytest.fixture(scope="module")
def advise(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ask]:
    """The command, beside a Prometheus of them."""
    folder = tmp_path_factory.mktemp("claims")
    with asking(folder, blocks(folder, samples(BOXES))) as ask:
        yield ask


@pytest.mark.prometheus
def test_a_claim_is_advised_what_its_pods_hold_together(advise: Ask) -> None:
    """Three times 9 GiB are 27 GiB; the limit that is shown is the claim's, and no annotation is printed."""
    alone, rank = found(advise("team-a", "--json"))
    assert (rank["peak_bytes"], rank["advised_bytes"], rank["limit_bytes"]) == (9 * GIB, 29.75 * GIB, 30 * GIB)
    assert rank["why"].startswith("the peak of all containers of its ResourceClaim together (27.00Gi) in 4 days")
    assert rank["remarks"] == ["ask for 29.75Gi of memory in the capacity of the ResourceClaim"]
    assert (alone["advised_bytes"], alone["patch"]) == (10 * GIB, None)
    assert alone["remarks"] == ["ask for 10Gi of memory in the capacity of the ResourceClaim"]


def test_the_peak_of_a_pod_is_no_peak_of_a_claim() -> None:
    """Where the use of the claim is not known, the answer says that pods add up."""
    days = {number: Day(9 * GIB, 9 * GIB, 9 * GIB, GIB) for number in range(3)}
    one = advised(observed([Series(days, 80 * GIB, scope="claim")]), 0.1, 3)
    assert one.remarks == ("this is the peak of one pod: pods that share its ResourceClaim add up",)
