"""
The boards for Grafana, as data: `python -m grafana` writes them to dashboards/.

What goes in: the places (which boards there are, with which variables), the expressions, one module a board. What goes
out: classic dashboard JSON, the model that every Grafana since version 10 loads from a file. Law: nothing here is
shipped with the daemon, nothing is imported but the standard library, and the committed JSON is exactly what these
modules say.
"""
