"""The tests of one scene follow one another, so that one worker plays it once."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Order the book's tests by file and scene; all other tests keep their places."""
    places = [place for place, item in enumerate(items) if item.path.name == "test_book.py" and "case" in _params(item)]
    ordered = sorted((items[place] for place in places), key=_scene)
    for place, item in zip(places, ordered, strict=True):
        items[place] = item


def _params(item: pytest.Item) -> dict[str, object]:
    callspec = getattr(item, "callspec", None)
    return {} if callspec is None else callspec.params


def _scene(item: pytest.Item) -> tuple[str, str]:
    case = _params(item)["case"]
    return case.system.system, case.scene.mode  # type: ignore[attr-defined]
