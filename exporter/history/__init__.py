"""
What a Prometheus remembers of gpusteward.

What comes in: the address of a Prometheus, a window of time. What goes out: the answers to PromQL, as rows.

The rule: a window is asked in parts that Prometheus can answer within its limits.
"""
