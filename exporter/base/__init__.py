"""Small tools that every package may use: clock, quantities, text files, cgroup paths, errors."""
