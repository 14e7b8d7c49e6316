"""
Fixtures that stand for the world: the fake driver, real containers, the daemon as a process of its own.

What is faked: the driver library (and so the GPU). What is not: everything else; see docs/testbed.md.
"""

pytest_plugins = ["driver.fixtures", "containers.fixtures", "daemon.fixtures", "faults.plugin"]
