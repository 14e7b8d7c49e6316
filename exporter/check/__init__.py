"""
The preflight: checks whether the daemon can do on this node what its config asks for.

What comes in: the probes' findings, as data. What goes out: lines, each with a verdict, a message and, if not ok, a
fix; an exit code; text.

The rule: a check **fails** if the daemon cannot start, or its rounds can never be complete. It also fails if a source
that the config names does not answer, or a right that the mode needs is not granted. **warn** means that the daemon
works, and shows less. A source that could not be asked never counts as ok.
"""
