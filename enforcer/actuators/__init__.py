"""What does one thing to the world each. They do not know one another."""
