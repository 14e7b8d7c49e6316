"""
Advice on limits: how much GPU memory a workload needs, by what it used.

What comes in: a Prometheus, a window. What goes out: a limit per workload and container, as a patch in the form of its
sharing system.

The rule: it advises. Nothing is changed, and what is not known well enough is "unknown".
"""
