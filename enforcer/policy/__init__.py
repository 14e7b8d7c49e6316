"""The policy: pure functions from a snapshot and a history to a verdict. It knows `exporter.model` alone."""
