"""The plan of ZeRO's stages: its drawing, what a device holds, and what it sends."""

from __future__ import annotations

import re

import pytest

from mxdp.plans.layers import fully_sharded as plans
from mxdp.plans.layers.fully_sharded import fully_sharded, holds, moved, peak
from mxdp.plans.show.text import lives

SIZES = [70, 110, 30, 9]


def test_the_drawing_is_the_plan():
    drawn = [line.strip() for line in re.findall(r"^    layer \d .*$", plans.__doc__, re.MULTILINE)]
    assert "\n".join(drawn) == lives(fully_sharded(3, 2), 80)[0]


def test_a_narrow_drawing_is_cut_into_pieces():
    whole, pieces = lives(fully_sharded(3, 2), 80)[0], lives(fully_sharded(3, 2), 30)
    assert all(len(line) <= 30 for piece in pieces for line in piece.split("\n"))
    for layer, line in enumerate(whole.split("\n")):
        assert " ".join(piece.split("\n")[layer][10:] for piece in pieces).split() == line[10:].split()


@pytest.mark.parametrize("stage", [0, 1, 2, 3])
@pytest.mark.parametrize("layers", [1, 2, 5])
def test_each_layer_lives_in_order(layers, stage):
    plan = fully_sharded(layers, 2, stage)
    life = {0: "FBSU", 1: "FBRUG", 2: "FBRUG", 3: "GFxGBRxU"}[stage]
    for layer in range(layers):
        assert "".join(task.kind for task in plan.tasks if task.layer == layer) == life
    passes = [str(task) for task in plan.step if task.kind in "FB"]
    assert passes == [f"F{layer}" for layer in range(layers)] + [f"B{layer}" for layer in reversed(range(layers))]
    assert {task.kind for task in plan.update} <= {"U", "G"}


def test_in_stage_3_one_layer_is_whole_at_a_time_and_is_whole_when_it_is_used():
    plan = fully_sharded(5, 2)
    moments = holds(plan)
    for before, task, after in zip(moments, plan.tasks, moments[1:]):
        for layers in (before, after):
            assert sum(layer.parameters for layer in layers) <= 1
            assert sum(layer.gradients for layer in layers) <= 1
        if task.kind in "FB":
            assert before[task.layer].parameters
        if task.kind == "R":
            assert before[task.layer].gradients
    assert moments[0] == moments[-1]


@pytest.mark.parametrize("devices", [1, 2, 3, 4])
def test_the_peak_is_the_sum_by_hand(devices):
    """Of the first device, whose parts are the longest, with Adam."""
    whole, parts, largest = sum(SIZES), sum(-(-size // devices) for size in SIZES), max(SIZES)
    assert peak(fully_sharded(4, devices, 0), SIZES) == 4 * whole
    assert peak(fully_sharded(4, devices, 1), SIZES) == 2 * whole + 2 * parts
    assert peak(fully_sharded(4, devices, 2), SIZES) == whole + largest + 3 * parts
    assert peak(fully_sharded(4, devices, 3), SIZES) == 2 * largest + 4 * parts
    assert peak(fully_sharded(4, devices, 3), SIZES, state=0, device=devices - 1) == (
        2 * largest + 2 * sum(size // devices for size in SIZES)
    )


@pytest.mark.parametrize(("stage", "times"), [(0, 2), (1, 2), (2, 2), (3, 3)])
def test_what_moves_is_zeros(stage, times):
    assert moved(fully_sharded(4, 4, stage), SIZES) == times * 3 * sum(SIZES)
    assert moved(fully_sharded(4, 1, stage), SIZES) == 0


@pytest.mark.parametrize(
    ("arguments", "words"), [((0, 2), "not 0 layers"), ((2, 0), "0 devices"), ((2, 2, 4), "not 4")]
)
def test_what_cannot_be_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        fully_sharded(*arguments)
