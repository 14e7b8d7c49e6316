"""The JSON documents that the daemon serves, and the client that asks a daemon for them."""
