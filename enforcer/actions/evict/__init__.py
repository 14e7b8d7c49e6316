"""Evict a pod through the Eviction API."""
