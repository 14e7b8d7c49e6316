"""How an error reads on a terminal."""

from exporter.base.problem import WIDEST, Problem, lines


def test_what_happened_cause_and_fix_are_lines_of_their_own() -> None:
    """In this order; what is not known has no line."""
    error = Problem("cannot listen on :9478", cause="address already in use", fix="end the other process")
    assert [*lines("gpusteward run", error)] == [
        "gpusteward run: cannot listen on :9478",
        "cause: address already in use",
        "fix: end the other process",
    ]
    assert [*lines("gpusteward", "nothing else is known")] == ["gpusteward: nothing else is known"]
    assert str(error) == "cannot listen on :9478: address already in use; fix: end the other process"


def test_no_line_is_longer_than_160_characters() -> None:
    """Long texts go on in the next line; a path stays whole, so that it can be copied."""
    path = "/" + "a" * 200
    told = [*lines("gpusteward", Problem("word " * 100, fix=f"look at {path} " + "word " * 100))]
    assert [line for line in told if len(line) > WIDEST] == [f"  {path}"]
    assert " ".join(" ".join(told).split()).count("word") == 200


def test_foreign_text_becomes_printable() -> None:
    """An escape sequence in a file name does nothing to the terminal."""
    assert [*lines("gpusteward", Problem("\x1b[31m", fix="a\nb"))] == [r"gpusteward: \x1b[31m", r"fix: a\nb"]
