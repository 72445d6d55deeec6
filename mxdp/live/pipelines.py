"""A pipeline: the staircase, the bubble, and what each stage keeps."""

from __future__ import annotations

from mxdp.live.drawn import beside, scrolled, table
from mxdp.live.topic import Answer, Control, Settings, Topic
from mxdp.plans.pipeline import PIPELINES, bubble, cycles, kept, pipeline
from mxdp.plans.show.moving import moving
from mxdp.plans.show.text import staircase

WIDEST = 1000
"""Letters of a line: every staircase is drawn in one piece."""


def answer(s: Settings) -> Answer:
    """The plan that moves, beside the numbers of both schedules."""
    stages = s["stages"]
    parts = s["micro-batches"]
    plans = {name: pipeline(name, stages, parts) for name in PIPELINES}
    chosen = plans[s["schedule"]]
    counts = zip(range(stages), *map(kept, plans.values()))
    rows = [list(map(str, row)) for row in counts]
    board = moving(chosen)._repr_html_()
    numbers = table("Micro-batches kept", ["stage", *plans], rows)
    (stairs,) = staircase(chosen, WIDEST)
    return Answer(
        said=f"{chosen.name} takes {len(cycles(chosen))} cycles, {100 * bubble(stages, parts):.3g} % of them idle (the "
        f"bubble); a stage keeps the activations of up to {max(kept(chosen))} micro-batches.",
        question=f"With {2 * parts} micro-batches instead of {parts}, what percentage of the cycles is idle?",
        truth=f"{100 * bubble(stages, 2 * parts):.3g} %",
        html=scrolled("The staircase", f"<pre>{stairs}</pre>") + beside(board, numbers),
    )


TOPIC = Topic(
    "A pipeline",
    "All tasks are equally long, and messages take no time.",
    [
        Control("schedule", "Schedule", "gpipe", list(PIPELINES)),
        Control("stages", "Stages", 4, range(2, 17)),
        Control("micro-batches", "Micro-batches", 4, range(1, 33)),
    ],
    answer,
)
