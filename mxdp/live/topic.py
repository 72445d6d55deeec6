"""A topic of the page: its settings, which stand in the page's address, and what is shown for them."""

from __future__ import annotations

from typing import Any, Callable, Dict, Mapping, NamedTuple, Sequence
from urllib.parse import parse_qsl

from mxdp.errors import UsageError, did_you_mean, either

Settings = Mapping[str, Any]
"""By their keys."""


class Control(NamedTuple):
    """A setting: its key in the address, its label, the first of the values that it can have, and how a reader sees
    one of them."""

    key: str
    label: str
    first: Any
    allowed: Sequence[Any]
    text: Callable[[Any], str] = str

    def value(self, given: str) -> Any:
        """The allowed value that is written so. Raises a UsageError if there is none."""
        for value in self.allowed:
            if str(value) == given:
                return value
        raise UsageError(
            f"{self.key} is {either(map(str, self.allowed))}, not {given!r}: change it in the address"
        )

    def as_json(self) -> Dict[str, Any]:
        """For the page's script. It shows numbers by a slider, and words as a list."""
        return {
            "key": self.key,
            "label": self.label,
            "slider": not isinstance(self.first, str),
            "values": list(map(str, self.allowed)),
            "texts": list(map(self.text, self.allowed)),
        }


class Answer(NamedTuple):
    """``said``: the answer in a sentence; ``question``: what to guess, and its ``truth`` in words; ``html``: tables and
    drawings; ``idle``: keys of the settings that have no effect beside the others."""

    said: str
    question: str
    truth: str
    html: str
    idle: Sequence[str] = ()


class Topic(NamedTuple):
    """``about``: what the model holds, and what it leaves out."""

    title: str
    about: str
    controls: Sequence[Control]
    answer: Callable[[Settings], Answer]

    def settings(self, query: str) -> Settings:
        """All settings, of which some are given as in ``devices=4&bytes=1024``. Raises a UsageError for one that is
        unknown, or a value that is not allowed."""
        known = {control.key: control for control in self.controls}
        chosen = {key: control.first for key, control in known.items()}
        for key, given in parse_qsl(query, keep_blank_values=True):
            if key not in known:
                raise UsageError(
                    f"no setting here is called {key!r}; {did_you_mean(key, list(known))}"
                )
            chosen[key] = known[key].value(given)
        return chosen
