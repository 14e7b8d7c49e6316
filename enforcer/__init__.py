"""The half that decides and acts, and the commands for people. Imports go one way: it knows the exporter."""
