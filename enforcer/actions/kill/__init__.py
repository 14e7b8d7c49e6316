"""Signal the init process of a container."""
