"""What changes the world: one package for each action. The packages do not know one another."""
