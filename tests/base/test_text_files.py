"""Promises of exporter/base/text_files.py: what people wrote is read, or refused with its place."""

import os
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from exporter.base.text_files import DEEPEST, MalformedError, UnreadableError, plain, read


def refusal(text: str | bytes) -> str:
    with pytest.raises(MalformedError) as caught:
        plain(text.encode() if isinstance(text, str) else text)
    return caught.value.at("file")


def nested(depth: int) -> object:
    return [nested(depth - 1)] if depth else 1


def test_a_file_of_just_the_size_is_read(tmp_path: Path) -> None:
    """The limit is the largest size that is taken."""
    file = tmp_path / "file"
    file.write_bytes(b"12345")
    assert read(file, 5) == b"12345"
    with pytest.raises(UnreadableError, match="larger than 4 bytes"):
        read(file, 4)


def test_a_pipe_in_place_of_a_file_is_refused_at_once(tmp_path: Path) -> None:
    """The reader waits neither for a writer to come nor for a present writer to write."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    said: list[str] = []

    def look() -> None:
        with pytest.raises(UnreadableError) as caught:
            read(pipe, 10)
        said.append(str(caught.value))

    def in_time() -> None:
        reader = threading.Thread(target=look, daemon=True)
        reader.start()
        reader.join(10)
        assert not reader.is_alive(), "it waits for the writer"

    in_time()
    writer = os.open(pipe, os.O_RDWR)
    in_time()
    os.close(writer)
    assert said == ["cannot be read: not a regular file"] * 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", None),
        ("a: [1, 0x10, 1.5, true, null, text, '*a']", {"a": [1, 16, 1.5, True, None, "text", "*a"]}),
        ('{"a": "\\u00e9"}', {"a": "\u00e9"}),
        (f"a: '{'9' * 5000}'", {"a": "9" * 5000}),
        ("[" * DEEPEST + "1" + "]" * DEEPEST, nested(DEEPEST)),
    ],
    ids=["empty", "YAML", "JSON", "long text", "deep"],
)
def test_plain_data_comes_out(text: str, expected: object) -> None:
    """YAML and JSON; what looks like something else and is quoted is text; so deep, and no deeper."""
    assert plain(text.encode()) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "node: &n {name: *n}",
            "file:1:7: an anchor (&) or alias (*), which is not taken here; quote it if it is text",
        ),
        ("a: *b", "file:1:4: an anchor (&) or alias (*)"),
        ("a: {<<: {b: 1}}", "file:1:5: a merge key (<<), which is not taken here; write the keys out"),
        ("a: !!int ''", "file:1:4: expected a value of the kind int; quote it if it is text"),
        ("a: !!float ''", "file:1:4: expected a value of the kind float"),
        ("a: !!bool x", "file:1:4: expected a value of the kind bool; quote it if it is text"),
        ("- b: 2025-13-45", "file:1:6: expected a value of the kind timestamp; quote it if it is text"),
        ("a: !!timestamp x", "file:1:4: expected a value of the kind timestamp; quote it if it is text"),
        ("a: 0x_", "file:1:4: expected a value of the kind int; quote it if it is text"),
        (f"a: 0x{'f' * 5000}", "file:1:4: "),
        (f"a: 1{':59' * 5000}", "file:1:4: "),
        ("a: !!python/object/apply:os.system [id]", "file:1:4: a tag (!), which is not taken here"),
        ('a: "\\ud800"', "file:1:"),
        ("a: b\nc:\n\td: e", "file:3:1: a tab where YAML wants spaces"),
        ("a: [", "file:1:5: "),
        ("a: b\na: c", 'file:2:1: the key "a" twice'),
        ("? [b]\n: c", "file:1:3: a key that is not text; quote it"),
        ("a: 1\n---\nb: 2", "file:2:1: but found another document"),
        ("\n\u00e4: \x01", "file:2:4: a character that is not text (code 1)"),
        (b"a: \xff", "file: not UTF-8 text (byte 3)"),
        ("[" * 1_000_000, f"file:1:{DEEPEST + 1}: nested too deeply"),
        ("{a: " * 1_000_000, f"file:1:{4 * DEEPEST + 1}: nested too deeply"),
    ],
    ids=str,
)
def test_what_is_not_plain_data_is_refused_with_its_place(text: str | bytes, expected: str) -> None:
    """The YAML library raises six kinds of errors for these, recurses without end, or overflows its stack."""
    assert refusal(text).startswith(expected)


def test_aliases_cannot_blow_up() -> None:
    """Twenty lines that mean a million values are refused at the first, not expanded."""
    lines = ["a0: &a0 [x, x]"] + [f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}]" for i in range(1, 60)]
    assert refusal("\n".join(lines)).startswith("file:1:5: an anchor")


@given(st.binary(max_size=200) | st.text("{}[]:,-#&*!|>'\"%@`\t\n aelogvinfdsmp0159x_.", max_size=80).map(str.encode))
def test_any_bytes_are_data_or_malformed(content: bytes) -> None:
    """Whatever stands in the file, nothing else rises."""
    with suppress(MalformedError):
        plain(content)
