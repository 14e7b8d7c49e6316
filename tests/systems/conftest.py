"""The tests of one scene follow one another, so that one worker plays it once."""

from typing import Any

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the book's tests by file and scene; all other tests keep their places."""
    book = [(place, item) for place, item in enumerate(items) if item.path.name == "test_book.py"]
    places = [place for place, item in book if {"case", "scene"} & _params(item).keys()]
    ordered = sorted((items[place] for place in places), key=_scene)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _params(item: pytest.Item) -> dict[str, Any]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _scene(item: pytest.Item) -> tuple[str, str]:
    params = _params(item)
    case = params.get("case")
    system, scene = (case.system, case.scene) if case else (params["system"], params["scene"])
    return system.system, scene.mode
