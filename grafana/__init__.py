"""
The boards for Grafana, as data: `python -m grafana` writes them to dashboards/.

In: the places (which boards there are, with which variables), shared expressions, and one module per board with its
panels and their queries. Out: classic dashboard JSON, the model that every Grafana since version 10 loads from a file,
written by the models of grafana-foundation-sdk. Rule: the daemon ships nothing of this package, and the committed JSON
is exactly what these modules say.
"""
