"""
What the answers of a preflight mean: whether the daemon can do here what it is asked to.

What comes in: what the probes found, as data. What goes out: lines, each with a verdict, what was found and, where that
is not good, what to do; an exit code; text.

The law: **fail** is what keeps the daemon from starting, or its rounds from ever being complete, or is a source that
the config asks for and that does not answer, or a right that the mode asks for and that is not granted. **warn** is
what it works without, and shows less. A source that could not be asked is not called good.
"""
