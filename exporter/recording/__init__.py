"""
Rounds on disk: what the sources said, so that all that follows from it can be worked out again, elsewhere and later.

What comes in: the answers of devices, host and names, round by round. What goes out: a file of JSON lines, and the same
answers again. `lines` is the form on disk, `writer` and `reader` the two ways, `keeping` says what of a declaration
goes into the file at all, `anonymizing` takes the names out. docs/recording.md is for people.

The rule: what was said is stored, never what followed from it. Attribution, accounts, limits and policy are worked out
anew.
"""

from exporter.recording.answers import HostRead, RecordedRound
from exporter.recording.lines import FORMAT, Header, RecordingError
from exporter.recording.reader import Reading
from exporter.recording.writer import Writing

__all__ = ["FORMAT", "Header", "HostRead", "Reading", "RecordedRound", "RecordingError", "Writing"]
