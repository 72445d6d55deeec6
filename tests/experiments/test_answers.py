"""Each answer is a sentence that can be read aloud: from the committed results, in the words of today."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mxdp.experiments.harness import results
from mxdp.experiments.harness.experiment import discover
from mxdp.experiments.harness.measurement import NO_ANSWER
from mxdp.experiments.report.words import HELD, SPOKEN, spoken, today

REFERENCE = Path(__file__).parents[2] / "experiments" / "reference"
RESULTS = sorted(path for folder in ("*", "*/quick") for path in REFERENCE.glob(f"{folder}/*.json"))
ON_GPUS = ("torch-copy-overlap", "torch-two-jobs")
"""A machine without a GPU can't answer them."""
INTERVAL = re.compile(r" \([^()]+ to [^()]+\)")
MARKS = "|".join(["can't tell", "failed", *(words for _, words in HELD.values())])


def problems(said):
    """What a reader would stumble over."""
    words = [word for word in INTERVAL.sub("", said).split() if not re.search(r"\d", word)]
    found = {
        "not one sentence": len(re.findall(r"[.!?](?=\s|$)", said)) != 1 or not said.endswith("."),
        f"{len(words)} words": len(words) > 30,
        "more than two intervals": len(INTERVAL.findall(said)) > 2,
        "begins with a mark": re.match(rf"\W*({MARKS})\b", said, re.IGNORECASE),
        "says that it can't tell": "can't tell" in said,
        "brackets in brackets": re.search(r"\([^()]*\(", said),
        "no number": not re.search(r"\d", said),
    }
    return [name for name, wrong in found.items() if wrong]


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.relative_to(REFERENCE)))
def test_an_answer_is_a_sentence_that_can_be_read_aloud(path):
    result = results.read(path)
    if result["verdict"]["text"] == NO_ANSWER:
        assert path.stem in ON_GPUS
        return
    shown = today(result, discover()[path.stem])
    assert shown["rows"] is not result["rows"], "it can be judged anew"
    said = shown["verdict"]["text"]
    assert problems(said) == [], said
    slide = [word for word in INTERVAL.sub("", spoken(said)).split() if not re.search(r"\d", word)]
    assert len(slide) <= SPOKEN, spoken(said)


def test_every_experiment_has_a_result():
    ours = {name for name, each in discover().items() if type(each).__module__.startswith("mxdp.")}
    assert {path.stem for path in RESULTS} == ours
