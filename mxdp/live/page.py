"""All pieces: an address becomes what the page shows."""

from __future__ import annotations

import json
from typing import Any, Dict

from mxdp.errors import MxdpError, UsageError, did_you_mean
from mxdp.live import allreduce, memory, pipelines, scaling
from mxdp.live.piece import Piece

PIECES: Dict[str, Piece] = {
    "allreduce": allreduce.PIECE,
    "scaling": scaling.PIECE,
    "memory": memory.PIECE,
    "pipeline": pipelines.PIECE,
}


def answer(address: str) -> str:
    """What is shown for an address such as ``allreduce?devices=4``, as JSON; or an ``error`` in a sentence."""
    name, _, query = address.partition("?")
    try:
        if name not in PIECES:
            raise UsageError(f"no part of this page is called {name!r}; {did_you_mean(name, list(PIECES))}")
        settings = PIECES[name].settings(query)
        found = PIECES[name].answer(settings)
    except (MxdpError, ValueError) as error:
        return json.dumps({"error": str(error)})
    values = {key: str(value) for key, value in settings.items()}
    return json.dumps({**found._asdict(), "piece": name, "values": values})


def pieces() -> Dict[str, Dict[str, Any]]:
    """What the page begins with: the controls of every piece, and its answer for the first settings."""
    return {
        name: {
            "title": piece.title,
            "about": piece.about,
            "controls": [control.as_json() for control in piece.controls],
            "first": json.loads(answer(name)),
        }
        for name, piece in PIECES.items()
    }
