"""Pages that step through plans: what they show is what the plan does."""

import contextlib
import json
import re
from dataclasses import asdict, replace
from html import unescape

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.errors import plural
from mxdp.plans.__main__ import NAMES, collective, main
from mxdp.plans.collective.algorithms import plan
from mxdp.plans.layers.fully_sharded import fully_sharded, holds, peak
from mxdp.plans.layers.halo import exchange, squarest
from mxdp.plans.layers.halo_axis import Window
from mxdp.plans.pipeline import bubble, cycles, gpipe, inference, kept, one_f_one_b
from mxdp.plans.show import moving as page
from mxdp.plans.show.board import of_collective, of_exchange, of_pipeline, of_sharded
from mxdp.plans.show.contents import contents, written
from mxdp.plans.show.moving import moving


def replayed(board):
    """The board after each frame: texts by place."""
    held, after = {}, []
    for frame in board.frames:
        held.update({(row, column): text for row, column, text, _ in frame.cells})
        after.append(dict(held))
    return after


def check_moves(board):
    """Each arrow leaves a cell that had something before, and ends at one that changes."""
    for frame, before, after in zip(board.frames[1:], replayed(board), replayed(board)[1:]):
        for *places, _ in frame.moves:
            source, target = tuple(places[:2]), tuple(places[2:])
            assert source in before
            assert before.get(target) != after[target]


def says(text, *expected):
    """The numbers of a sentence are these, and it is a sentence of the board."""
    numbers = [f"{number:.3g}" if isinstance(number, float) else str(number) for number in expected]
    assert re.findall(r"\d+(?:\.\d+)?", text) == numbers, text


@settings(max_examples=40)
@given(name=st.sampled_from(NAMES), devices=st.integers(1, 8))
def test_the_board_holds_what_the_devices_hold(name, devices):
    schedule = collective(name, devices)
    board = of_collective(schedule)
    check_moves(board)
    adds = any(send.action != "copy" for step in schedule.steps for send in step)
    after = contents(schedule)
    # What only copies is complete at its end.
    complete = {place: tuple(range(devices)) if adds else parts for place, parts in after[-1].items()}
    length = sum(schedule.sizes) or schedule.chunks
    for number, (frame, shown, held) in enumerate(zip(board.frames, replayed(board), after)):
        assert shown == {(device, chunk): written(schedule, chunk, parts) for (device, chunk), parts in held.items()}
        ready = {place for place, parts in held.items() if parts == complete[place]}
        for *place, _, kind in frame.cells:
            single = "own" if len(held[tuple(place)]) == 1 else "partial"
            assert kind == ("complete" if tuple(place) in ready else single)
        if not number:
            continue
        step = schedule.steps[number - 1]
        assert [(a, c, b) for a, c, b, _, _ in frame.moves] == [(s.source, s.chunk, s.target) for s in step]
        *_, finished = frame.text.split(". ")
        whole = [device for device in range(devices) if all(place in ready for place in held if place[0] == device)]
        says(finished, *([] if len(whole) == devices else whole or (len(ready), len(held))))
        assert ("sum" in finished) == adds
        sent = max(replace(schedule, steps=schedule.steps[:number]).sent(length)) / length
        assert frame.sent == pytest.approx(sent)
        says(frame.cost, number, sent)


@settings(max_examples=30)
@given(make=st.sampled_from([gpipe, one_f_one_b, inference]), stages=st.integers(1, 5), micro_batches=st.integers(1, 7))
def test_the_board_is_the_staircase(make, stages, micro_batches):
    plan = make(stages, micro_batches)
    rows, board = cycles(plan), of_pipeline(plan)
    shown = replayed(board)[-1]
    assert shown == {(s, c): str(task) for c, row in enumerate(rows) for s, task in enumerate(row) if task}
    check_moves(board)
    says(board.title.partition(": ")[2], stages, micro_batches, len(rows))
    ends = (0, stages - 1) if stages > 1 else (0,)
    says(board.about, 100 * bubble(stages, micro_batches), *ends, *kept(plan))
    for cycle, frame in enumerate(board.frames[1:]):
        idle = [task is None for row in rows[: cycle + 1] for task in row]
        done = [tasks[: sum(map(bool, column))] for tasks, column in zip(plan.tasks, zip(*rows[: cycle + 1]))]
        alive = [sum(1 if task.kind == "F" else -1 for task in tasks) for tasks in done]
        says(frame.cost, cycle + 1, f"{100 * sum(idle) / len(idle):.0f}", *alive, 0, stages - 1)
        assert {kind for *_, kind in frame.cells} <= {"forward", "backward"}
        assert all((text[0] == "F") == (kind == "forward") for *_, text, kind in frame.cells)


@given(tiles=st.sampled_from([1, 2, 3, 4, 6, 9]), height=st.integers(9, 13), width=st.integers(6, 11))
def test_the_board_is_what_each_tile_holds(tiles, height, width):
    plan = exchange(height, width, squarest(tiles), Window(3, padding=1))
    board = of_exchange(plan)
    texts = [text for text in replayed(board)[-1].values() if len(text) == 1]
    for mark in "o12":
        assert texts.count(mark) == sum(plan.drawn(tile).count(mark) for tile in range(tiles))
    check_moves(board)
    assert board.title == str(plan).splitlines()[0]
    pixels = [sum(halo.elements for halo in step) for step in plan.steps]
    says(board.about, sum(map(len, plan.steps)), sum(pixels))
    for number, (frame, step) in enumerate(zip(board.frames[1:], plan.steps), 1):
        sent = [number for halo in step for number in (halo.source, halo.elements, halo.target)]
        says(frame.text, number, 2, *sent)
        says(frame.cost, number, sum(pixels[:number]))
        assert [text for *_, text in frame.moves] == [str(halo.elements) for halo in step]
    rows, columns = len(board.rows), len(board.columns)
    assert all(row < rows and column < columns for row, column in replayed(board)[-1])


@given(layers=st.integers(1, 4), devices=st.integers(1, 5), stage=st.integers(0, 3))
def test_the_board_holds_what_a_device_holds_of_each_layer(layers, devices, stage):
    found = fully_sharded(layers, devices, stage)
    board, part = of_sharded(found), f"1/{devices}" if devices > 1 else "whole"
    sent = float((3 if stage == 3 else 2) * (devices - 1) / devices)
    for number, (frame, shown, held) in enumerate(zip(board.frames, replayed(board), holds(found))):
        for row, layer in enumerate(held):
            assert shown[row, 0] == ("whole" if layer.parameters else part)
            assert shown[row, 1] == ("whole" if layer.gradients else part)
            assert shown[row, 2] == (part if stage else "whole")
            assert shown.get((row, 3), "") == ("kept" if layer.activations else "")
        if number:
            task = found.tasks[number - 1]
            assert shown[task.layer, 4] == task.kind
            assert frame.text.startswith(f"Task {number} of {len(found.tasks)}: layer {task.layer}, ")
            assert frame.cost.startswith(
                f"The parameters of {plural(sum(layer.parameters for layer in held), 'layer')} "
            )
    assert board.frames[-1].cost.endswith(f" has sent {sent:.3g} of all")
    sizes = [devices] * layers
    share = peak(found, sizes) / peak(fully_sharded(layers, devices, 0), sizes)
    says(board.about, float(share), sent)
    says(board.title, stage, devices, layers, len(found.tasks))


def test_a_page_needs_no_network_and_says_each_step():
    html = moving(plan("ring", 4)).html
    assert not re.search(r"https?:(?!//www.w3.org/2000/svg)|src=|href=|@import|url\((?!#)", html)
    steps = re.findall("<li>(.*)</li>", html)
    assert (len(steps), "Step 6 of 6" in html) == (7, True)
    assert all(re.fullmatch(r".*[^.]\.", text) for text in steps)


HOSTILE = ["</script><script>", "<!--", "[[STEPS]]", "[[MIB]]", "&lt;", '"\\']


@settings(max_examples=15)
@given(name=st.text(max_size=20) | st.sampled_from(HOSTILE))
def test_a_hostile_name_is_read_back_and_ends_no_script(name):
    schedule = replace(plan("ring", 2), name=name)
    page = moving(schedule)
    (data,) = re.findall(r'type="application/json">(.*?)</script>', page.html, re.DOTALL)
    assert json.loads(data) == json.loads(json.dumps(asdict(of_collective(schedule))))
    assert page.html.count("</script>") == 2
    frame = page._repr_html_()
    assert frame.startswith("<iframe ")
    assert "<script" not in frame  # it is escaped
    assert name in unescape(frame)


def test_a_plan_fits_into_a_page_if_it_has_no_more_cells_than_the_page_has_room(monkeypatch):
    cells = sum(len(frame.cells) for frame in of_collective(plan("ring", 3)).frames)
    for room in range(cells - 1, cells + 2):
        monkeypatch.setattr(page, "MOST_CELLS", room)
        with contextlib.nullcontext() if cells <= room else pytest.raises(ValueError, match=f": {cells} cells are too"):
            assert moving(plan("ring", 3)).rows == 3


@pytest.mark.parametrize("arguments", ["ring 4", "gpipe 3", "tiles", "fully-sharded 2"])
def test_the_command_writes_a_page(arguments, tmp_path, monkeypatch, capsys):
    file = f"runs/{'-'.join(f'{arguments} 4'.split()[:2])}.html"  # of four devices by default
    monkeypatch.chdir(tmp_path)
    assert main([*arguments.split(), "--html"]) == main([*arguments.split(), "--html", "own.html"]) == 0
    assert capsys.readouterr().out.startswith(f"{file}: open it in a browser")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["own.html", "runs"]
    assert (tmp_path / file).read_text() == (tmp_path / "own.html").read_text()
