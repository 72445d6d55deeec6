from __future__ import annotations

from mxdp.tracing.events import Event, call_kind, operator_kind, to_microseconds, to_seconds, tracks

NAMES = {
    "compute": ("Convolution", "_npi_add", "_copy"),
    "copy": ("CopyCPU2CPU", "CopyGPU2CPU", "_copyto_GPU2GPU"),
    "upload": ("CopyCPU2GPU",),
    "all-reduce": ("broadcast_add", "elemwise_add", "add_n", "KVStoreReduce"),
    "engine": ("DeleteVariable", "WaitForVar", "mxdp job", "ResourceParallelRandomSetSeed"),
    "wait": ("MXNDArrayWaitAll", "MXNDArrayWaitToRead", "MXNDArraySyncCopyToCPU"),
    "call": ("MXImperativeInvokeEx", "MXAutogradBackwardEx"),
}


def test_the_name_tells_the_kind_and_can_be_overridden():
    for kind, names in NAMES.items():
        for name in names:
            assert (call_kind if name.startswith("MX") else operator_kind)(name) == kind
    assert operator_kind("elemwise_add", {"elemwise_add": "compute"}) == "compute"
    assert operator_kind("add_n", {"elemwise_add": "compute"}) == "all-reduce"


def test_no_two_events_on_one_track_overlap_and_a_moment_takes_none():
    spans = [(0, 5), (1, 1), (1, 3), (2, 4), (3, 6), (5, 7)]
    placed = list(tracks(Event("cpu(0)", "dot", "compute", *span) for span in spans))
    assert [track for track, _ in placed] == [0, 1, 1, 2, 1, 0]
    assert [(event.start, event.end) for _, event in placed] == spans


def test_seconds_and_microseconds_convert_exactly():
    assert all(to_microseconds(to_seconds(n)) == n for n in (*range(1000), 10**12 + 1))
