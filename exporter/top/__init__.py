"""
`gpusteward top`: the GPUs of a node and who holds them, as a table for a terminal.

The law: everything is drawn of the daemon's JSON document (docs/api.md); nothing is asked of driver, kernel or
Kubernetes, and no figure is made up that the document does not have.
"""
