"""Limit the memory of a container in the driver (experimental). The only code that writes to the driver."""
