"""
How long a test waits for what it expects before it gives up.

What comes in: nothing. What goes out: seconds.

The rule: a wait ends when its condition holds. So this number costs a test that passes nothing, and is no promise of
the product: a machine that is busy with other tests is slow, and not wrong. Clusters on two slow cores took more than
60 s for one `gpusteward check`.
"""

PATIENCE = 600.0
