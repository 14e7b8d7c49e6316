"""Kubernetes objects as structs with the fields that are read, from the API server and from files."""
