"""
From samples to accounts: attribution, the accounts of each GPU, and the snapshot.

Pure: no file, clock or network.
"""
