"""``python -m mxdp.experiments``: asks, and answers with a table, a picture and a verdict."""
