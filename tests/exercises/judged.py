"""Reads ``mistakes.txt``, ``refused.txt`` and ``accepted.txt``: bodies of functions, or changes of the solution, in
which lines with ``>`` become the lines with ``<`` below them."""

from __future__ import annotations

import re
from pathlib import Path

from solutions import SOLUTIONS


def judged(file):
    """The exercise, what is done, words of the checker's answer, the function's body."""
    answers = []
    for part in (Path(__file__).parent / file).read_text().split("\n# ")[1:]:
        head, body = f"{part}\n".split("\n", 1)
        name, what, words = re.fullmatch(r"(\w+): (.*?)(?: \(([^()]{12,})\))?", head).groups()
        hunks = re.findall(r"((?:^>.*\n)+)((?:^<.*\n)*)", body, re.MULTILINE)
        body = SOLUTIONS[name] if hunks else body
        for hunk in hunks:
            old, new = (re.sub("^[<>]", " ", lines, flags=re.MULTILINE) for lines in hunk)
            assert old in body, (name, what)
            body = body.replace(old, new)
        answers.append((name, what, words or "", body))
    return answers
