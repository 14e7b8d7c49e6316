"""
Reading: joins the answers of the driver, the kernel and Kubernetes into one snapshot per round.

No code in this package can act on a process, a pod or a device, and none imports code that could.
"""
