"""Shared by the tests of reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from prometheus.scraping import serving
from report import week
from report.days import END, Sample, Serve, at
from report.test_report import Asking


@pytest.fixture
def serve(tmp_path: Path) -> Serve:
    """The command beside a Prometheus with given samples; it reports two days."""

    @contextmanager
    def serve(samples: Iterable[Sample]) -> Iterator[Asking]:
        class Days(Asking):
            def __call__(self, *words: str, code: int = 0, **variables: str) -> str:
                return super().__call__("--since", "2d", "--until", at(END), *words, code=code, **variables)

        with serving(week.blocks(tmp_path, samples), tmp_path) as one:
            yield Days(one.url)

    return serve
