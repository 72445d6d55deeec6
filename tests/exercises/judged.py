"""Reads ``refused.txt`` and ``accepted.txt``: bodies of functions, or changes (``>`` becomes ``<``) of the solution."""

from __future__ import annotations

import re
from pathlib import Path
from typing import List, Tuple

from solutions import SOLUTIONS


def judged(file: str) -> List[Tuple[str, str, str, str]]:
    """The exercise, what is done, words of the checker's answer, the function's body."""
    found = []
    for part in (Path(__file__).parent / file).read_text().split("\n# ")[1:]:
        head, text = part.split("\n", 1)
        name, what, words = re.fullmatch(r"(\w+): (.*?)(?: \(([^()]{12,})\))?", head).groups()  # type: ignore[union-attr]
        lines = text.rstrip("\n").splitlines()
        old, new = ["\n".join(" " + line[1:] for line in lines if line[0] == mark) for mark in "><"]
        assert old in SOLUTIONS[name], (name, what)
        found.append((name, what, words or "", SOLUTIONS[name].replace(old, new) if old else text))
    return found
