"""
Observe: what the driver, the kernel and Kubernetes say, joined into one snapshot a round.

Nothing in this package can act on a process, a pod or a device, and nothing in it imports code that could.
"""
