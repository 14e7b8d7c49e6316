"""The rounds: read the sources, join the answers, publish the snapshot."""
