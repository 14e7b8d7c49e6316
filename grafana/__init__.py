"""
The boards for Grafana, as data: `python -m grafana` writes them to dashboards/.

What comes in: the boards and their variables, shared expressions, and one module per board with its panels and their
queries. What goes out: classic dashboard JSON, which every Grafana since version 10 loads from a file. The models of
grafana-foundation-sdk write it.

The rule: the daemon ships nothing of this package, and the committed JSON is exactly the output of these modules.
"""
