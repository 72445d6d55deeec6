from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mxdp.plans.layers.column_row import COLUMNS, OWN, ROWS, WHOLE, cut_layers, segments

nets = st.lists(st.booleans(), max_size=12)


@given(weights=nets)
def test_columns_and_rows_take_turns(weights):
    cuts = cut_layers(weights)
    assert [cut in (COLUMNS, ROWS) for cut in cuts] == weights
    turns = [cut for cut in cuts if cut in (COLUMNS, ROWS)]
    assert turns == [(COLUMNS, ROWS)[number % 2] for number in range(len(turns))]


@given(weights=nets)
def test_a_layer_without_weights_has_what_the_last_one_with_weights_made(weights):
    last = ROWS
    for cut in cut_layers(weights):
        if cut in (COLUMNS, ROWS):
            last = cut
        else:
            assert cut == (OWN if last == COLUMNS else WHOLE)


@given(weights=nets)
def test_segments_are_all_layers_in_order_and_end_whole(weights):
    cuts = cut_layers(weights)
    found = segments(cuts, [True] * (len(cuts) + 1))
    assert [layer for segment in found for layer in segment.layers] == list(range(len(cuts)))
    assert not found[-1].split
    for segment in found:
        own = [cuts[layer] for layer in segment.layers]
        assert segment.split == (COLUMNS in own)
        if segment.split:
            assert own[0] == COLUMNS
            assert (segment.then == "all-reduce") == (own[-1] == ROWS)
            assert set(own[1:-1]) <= {OWN}
        else:
            assert set(own) <= {WHOLE}


@given(weights=nets)
def test_there_is_one_all_reduce_a_pair(weights):
    cuts = cut_layers(weights)
    found = segments(cuts, [True] * (len(cuts) + 1))
    assert sum(segment.then == "all-reduce" for segment in found) == sum(weights) // 2
    assert sum(segment.then == "all-gather" for segment in found) == sum(weights) % 2


@given(data=st.data())
def test_a_segment_knows_whether_its_input_has_a_gradient(data):
    weights = data.draw(nets)
    back = data.draw(st.lists(st.booleans(), min_size=len(weights) + 1, max_size=len(weights) + 1))
    for segment in segments(cut_layers(weights), back):
        assert segment.back == back[segment.layers[0] if segment.layers else -1]
