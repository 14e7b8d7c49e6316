"""Pages are taken whole, of code what people read; each finding leads to its line."""

import pytest

from prose.texts import Part, newest, of_python, of_yaml, prose

MODULE = '''\
"""A docstring
of two lines."""

# A comment,
# in two lines.
LIMIT = 5  # beside it  # noqa: PLR2004
"""An attribute's docstring."""


def raises(name):
    raise ValueError(f"the pod {name} has no "
                     "limit of its own")


KEYS = ("memory_used_bytes", "a/path.py", "by uid", "sum by (uuid) (of all the pods)")
'''
ALERT = """\
groups:
  - name: gpusteward  # a remark
    rules:
      - alert: GPULost
        expr: up == 0
        annotations:
          summary: The GPU is lost.
          description: >-
            {{ $labels.node }} has lost
            a GPU.
"""


def test_of_python_people_read_docstrings_comments_and_messages() -> None:
    """Keys, paths and queries are no prose; what a message is filled with is code."""
    assert sorted(of_python(MODULE), key=lambda one: one.line) == [
        Part(1, "A docstring\nof two lines."),
        Part(4, "A comment,\nin two lines."),
        Part(6, "beside it"),
        Part(7, "An attribute's docstring."),
        Part(11, "the pod `x` has no limit of its own"),
    ]


def test_of_alerts_people_read_the_annotations() -> None:
    """And the comments, as of each YAML file."""
    assert list(of_yaml(ALERT)) == [
        Part(2, "a remark"),
        Part(7, "The GPU is lost."),
        Part(8, "`x` has lost a GPU."),
    ]


def test_a_template_is_read_for_its_comments() -> None:
    """Helm's templates are not YAML."""
    assert list(of_yaml("# why\n{{- if .Values.x }}\nannotations: {{ toYaml . }}\n{{- end }}\n")) == [Part(1, "why")]


def test_each_line_leads_to_its_place() -> None:
    """Parts stand apart, so that no sentence runs into the next comment."""
    found = prose("a.py", MODULE)
    assert {text: line for text, line in zip(found.text.split("\n"), found.lines, strict=False) if text} == {
        "A docstring": 1,
        "of two lines.": 2,
        "A comment,": 4,
        "in two lines.": 5,
        "beside it": 6,
        "An attribute's docstring.": 7,
        "the pod `x` has no limit of its own": 11,
    }


@pytest.mark.parametrize("changelog", ["# Changes\n\n## 0.2\nnew\n\n## 0.1\nold\n", "# Changes\n\n## 0.2\nnew\n"])
def test_what_was_released_is_history(changelog: str) -> None:
    """The newest section alone is looked at."""
    assert newest(changelog).split() == ["##", "0.2", "new"]
