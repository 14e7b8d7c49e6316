"""Small tools without a subject of the project: clock, quantities, text files, cgroup paths."""
