"""
The report about a time: what was used, what it cost, what was not needed.

What comes in: a Prometheus, a window, prices. What goes out: a table that adds up to 100 %, as text, CSV or JSON.

The rule: nothing is left out. What was not measured has rows of its own.
"""
