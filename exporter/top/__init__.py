"""
`gpusteward top`: the GPUs of a node and the memory of their containers, as a table for a terminal.

What comes in: the daemon's JSON document (docs/api.md). What goes out: text.

The rule: the document is the only source. The driver, the kernel and Kubernetes are not read.
"""
