"""
The rounds: read the sources, join the answers, publish the snapshot.

What comes in: the three sources. What goes out: `Latest`, with the newest snapshot.
"""
