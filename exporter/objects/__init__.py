"""What Kubernetes objects look like: the parts that are read, from the API server and from files."""
