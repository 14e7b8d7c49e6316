"""The JSON documents that the daemon serves, and the HTTP client that reads them."""
