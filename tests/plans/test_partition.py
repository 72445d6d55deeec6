from functools import partial
from itertools import combinations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mxdp.plans.layers.column_row import COLUMNS, OWN, ROWS, WHOLE, cut_layers, segments
from mxdp.plans.partition import balance, bounds, cuts, fill_buckets, offsets, pieces

gradients = st.lists(st.tuples(st.integers(0, 9), st.sampled_from("ab")), max_size=12)
times = st.lists(st.integers(0, 20), min_size=1, max_size=9)


@given(length=st.integers(0, 500), parts=st.integers(1, 40))
def test_pieces_cover_everything_once_in_order_and_the_longer_come_first(length, parts):
    borders = bounds(length, parts)
    sizes = [stop - start for start, stop in borders]
    assert [i for start, stop in borders for i in range(start, stop)] == list(range(length))
    assert sizes == sorted(sizes, reverse=True)
    assert (len(sizes), max(sizes) - min(sizes) <= 1) == (parts, True)
    assert [0, *cuts(length, parts)] == [start for start, _ in borders]


@given(length=st.integers(0, 300), weights=st.lists(st.sampled_from([1e-9, 0.3, 1, 2.5, 100]), min_size=1, max_size=7))
def test_pieces_follow_their_weights_and_none_is_empty_while_there_are_enough(length, weights):
    parts = len(weights)
    ends = [0, *cuts(length, parts, weights), length]
    sizes = [stop - start for start, stop in zip(ends, ends[1:])]
    assert offsets(sizes) == ends
    if length < parts:
        assert tuple(ends[1:-1]) == cuts(length, parts)
        return
    shares = [length * weight / sum(weights) for weight in weights]
    assert min(sizes) >= 1
    lacks = [share - size for share, size in zip(shares, sizes)]
    for size, mine in zip(sizes, lacks):  # nobody would give one away to who lacks more
        assert size == 1 or max(lacks) - mine <= 1 + 1e-9


@given(gradients, st.integers(1, 20))
def test_each_gradient_is_in_one_bucket_of_its_kind_that_is_closed_when_it_is_full(gradients, room):
    nbytes, kinds = [size for size, _ in gradients], [kind for _, kind in gradients]
    buckets = fill_buckets(nbytes, kinds, room)
    assert sorted(number for bucket in buckets for number in bucket) == list(range(len(gradients)))
    for bucket in buckets:
        assert bucket == sorted(bucket, reverse=True)
        assert len({kinds[number] for number in bucket}) == 1
        assert sum(nbytes[number] for number in bucket) <= room or len(bucket) == 1
    for kind in set(kinds):
        same = [bucket for bucket in buckets if kinds[bucket[0]] == kind]
        for bucket, following in zip(same, same[1:]):
            assert sum(nbytes[number] for number in bucket) + nbytes[following[0]] > room


@settings(max_examples=60)
@given(times=times, data=st.data())
def test_no_cut_is_better(times, data):
    def longest(borders):
        return max(sum(times[start:stop]) for start, stop in pieces(len(times), borders))

    stages = data.draw(st.integers(1, len(times)))
    assert longest(balance(times, stages)) == min(map(longest, combinations(range(1, len(times)), stages - 1)))


@pytest.mark.parametrize(
    ("cut", "message"),
    [
        *((partial(bounds, *pair), "{} elements into {} parts".format(*pair)) for pair in ((-1, 2), (3, 0), (3, -1))),
        *(
            (partial(cuts, 9, 3, wrong), "weights are 3 numbers above 0")
            for wrong in ([1, 2], [1, 2, 0], [1, 2, "3"], 5)
        ),
        (partial(cuts, 9, 3, [1, 2, float("inf")]), "weights are 3 numbers above 0"),
        *((partial(balance, [1] * 3, stages), f"can't cut 3 layers into {stages} stages") for stages in (0, -1, 4)),
        *((partial(pieces, 5, wrong), "rising layer numbers from 1 to 4") for wrong in ((0,), (5,), (3, 2), (2, 2))),
    ],
)
def test_what_cannot_be_cut_is_named(cut, message):
    with pytest.raises(ValueError, match=message):
        cut()


nets = st.lists(st.booleans(), max_size=12)


@given(weights=nets)
def test_columns_and_rows_take_turns_and_what_is_between_keeps_their_cut(weights):
    last = ROWS
    for weighted, cut in zip(weights, cut_layers(weights)):
        if weighted:
            assert cut == (COLUMNS if last == ROWS else ROWS)
            last = cut
        else:
            assert cut == (OWN if last == COLUMNS else WHOLE)


@given(weights=nets, data=st.data())
def test_segments_are_all_layers_in_order_and_end_whole(weights, data):
    cuts = cut_layers(weights)
    back = data.draw(st.lists(st.booleans(), min_size=len(cuts) + 1, max_size=len(cuts) + 1))
    parts = segments(cuts, back)
    assert [layer for segment in parts for layer in segment.layers] == list(range(len(cuts)))
    assert not parts[-1].split
    assert sum(segment.then == "all-reduce" for segment in parts) == sum(weights) // 2
    assert sum(segment.then == "all-gather" for segment in parts) == sum(weights) % 2
    for segment in parts:
        assert segment.back == back[segment.layers[0] if segment.layers else -1]
        inside = [cuts[layer] for layer in segment.layers]
        assert segment.split == (COLUMNS in inside)
        if segment.split:
            assert inside[0] == COLUMNS
            assert (segment.then == "all-reduce") == (inside[-1] == ROWS)
            assert set(inside[1:-1]) <= {OWN}
        else:
            assert set(inside) <= {WHOLE}
