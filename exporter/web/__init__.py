"""The HTTP server: metrics, probes, JSON documents, the node page."""
