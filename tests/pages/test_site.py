"""The site: tools/site.py makes of the pages what MkDocs reads, and mkdocs.yml names each page."""

from typing import Any

import plain_yaml
from tools.site import DOCS, ROOT, indented, outside, rewritten

PAGE = DOCS / "operate.md"


def entries(nav: list[Any]) -> set[str]:
    """Name the pages of a navigation."""
    found: set[str] = set()
    for entry in nav:
        for value in entry.values():
            found |= entries(value) if isinstance(value, list) else {value}
    return found


def test_the_navigation_has_each_page() -> None:
    """A page that it lacks ends the build, too; here without MkDocs. Runbooks are listed by the hook."""
    listed = entries(plain_yaml.load((ROOT / "mkdocs.yml").read_text())["nav"])
    pages = {page.relative_to(DOCS).as_posix() for page in DOCS.rglob("*.md") if page.parent.name != "runbooks"}
    assert {page for page in listed if not page.startswith("repository/")} == pages | {"runbooks/"}
    assert all((ROOT / page.removeprefix("repository/")).exists() for page in listed if page.startswith("repository/"))


def test_a_link_out_of_docs_leads_to_a_copy_in_the_site() -> None:
    assert rewritten("[a](../CHANGELOG.md#x)", PAGE, "operate.md") == "[a](repository/CHANGELOG.md#x)"
    assert rewritten("[a]: ../Makefile", PAGE, "operate.md") == "[a]: repository/Makefile"
    assert outside(PAGE, "[a](../CHANGELOG.md) [b](policy.md) [c](https://x.example/y)") == {ROOT / "CHANGELOG.md"}


def test_a_page_from_outside_links_into_docs() -> None:
    text = "[a](docs/policy.md#mps) and [b](LICENSE)"
    wanted = "[a](../policy.md#mps) and [b](LICENSE)"
    assert rewritten(text, ROOT / "CONTRIBUTING.md", "repository/CONTRIBUTING.md") == wanted


def test_a_folder_is_plain_text_and_a_link_to_nothing_stays() -> None:
    """The strict build names what stays."""
    assert rewritten("[tests](../tests) [x](nowhere.md)", PAGE, "operate.md") == "tests [x](nowhere.md)"


def test_code_is_left_alone() -> None:
    text = "```sh\n[a](../CHANGELOG.md)\n- b\n```\n"
    assert indented(rewritten(text, PAGE, "operate.md")) == text


def test_what_belongs_to_an_item_is_four_columns_in() -> None:
    """GitHub takes two or three."""
    text = "Steps:\n1. One\n\n   ```sh\n   a\n     b\n   ```\n2. Two\n- x\n  y\n\nEnd\n"
    wanted = "Steps:\n\n1. One\n\n    ```sh\n    a\n      b\n    ```\n2. Two\n- x\n    y\n\nEnd\n"
    assert indented(text) == wanted


def test_each_page_keeps_its_words() -> None:
    """Nothing is lost but white space and the targets of links."""
    for page in DOCS.rglob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert indented(text).split() == text.split(), page
