"""``python -m mxdp.experiments``: asks, and answers with a table, a picture and a verdict."""

import sys as _sys

from mxdp.errors import need as _need

_TOML = () if _sys.version_info >= (3, 11) else ("tomli",)
if _sys.argv[0] == "-m":  # the command; the cost model of `predict`, imported, needs none of them
    _need(
        "mxdp.experiments",
        "experiments",
        "filelock",
        "jinja2",
        "matplotlib",
        "rich",
        "sklearn",
        *_TOML,
    )
