"""
Recordings: the answers of the sources on disk, so that the rounds can be computed again, elsewhere and later.

What comes in: the answers of devices, host and names, round by round. What goes out: a file of JSON lines, and the same
answers again. docs/recording.md is the page for users. The files:
- `lines` has the format, `writer` and `reader` use it,
- `keeping` chooses the parts of a declaration that go into the file,
- `anonymizing` replaces the names.

The rule: only answers are stored, never results. Attribution, accounts, limits and policy are computed again.
"""

from exporter.recording.answers import HostRead, RecordedRound
from exporter.recording.lines import FORMAT, Header, RecordingError
from exporter.recording.reader import Reading
from exporter.recording.writer import Writing

__all__ = ["FORMAT", "Header", "HostRead", "Reading", "RecordedRound", "RecordingError", "Writing"]
