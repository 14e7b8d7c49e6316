"""
The HTTP server: metrics, probes, JSON documents, the node page.

What comes in: `Latest`, and requests. What goes out: responses.
"""
