"""All topics: an address becomes what the page shows."""

from __future__ import annotations

import json
from typing import Any, Dict

from mxdp.errors import MxdpError, UsageError, did_you_mean
from mxdp.live import allreduce, memory, pipelines, scaling

TOPICS = {
    "allreduce": allreduce.TOPIC,
    "scaling": scaling.TOPIC,
    "memory": memory.TOPIC,
    "pipeline": pipelines.TOPIC,
}


def answer(address: str) -> str:
    """What is shown for an address such as ``allreduce?devices=4``, as JSON; or an ``error`` in a sentence."""
    name, _, query = address.partition("?")
    try:
        if name not in TOPICS:
            raise UsageError(
                f"no part of this page is called {name!r}; {did_you_mean(name, list(TOPICS))}"
            )
        settings = TOPICS[name].settings(query)
        found = TOPICS[name].answer(settings)
    except (MxdpError, ValueError) as error:
        return json.dumps({"error": str(error)})
    values = {key: str(value) for key, value in settings.items()}
    return json.dumps({**found._asdict(), "topic": name, "values": values})


def topics() -> Dict[str, Dict[str, Any]]:
    """What the page begins with: the controls of every topic, and its answer for the first settings."""
    made = {}
    for name, topic in TOPICS.items():
        made[name] = {
            "title": topic.title,
            "about": topic.about,
            "controls": [control.as_json() for control in topic.controls],
            "first": json.loads(answer(name)),
        }
    return made
