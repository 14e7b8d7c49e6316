"""From samples to accounts: attribution, the accounts of each GPU, the joined snapshot. Pure."""
