"""Every text about a decision: Events, log lines, reasons, JSON. Pure."""
