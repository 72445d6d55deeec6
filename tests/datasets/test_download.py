from __future__ import annotations

import hashlib

import pytest

from mxdp.datasets.download import PART, Limits, fetch
from mxdp.datasets.known_file import KnownFile
from mxdp.errors import DataError

DATA = bytes(range(256)) * 1000
FILE = KnownFile("a.gz", len(DATA), hashlib.sha256(DATA).hexdigest())
CONTENTS = {"a.gz": DATA}
FAST = Limits(answer=2, stall=5, total=60)


def breaks_once(after, then):
    """Send the headers for all and ``after`` bytes, then close; from the second request on behave as ``then``."""
    calls = []

    def get(handler, data):
        calls.append(1)
        if len(calls) > 1:
            then(handler, data)
            return
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:after])
        handler.close_connection = True

    return get


def ignores_ranges(handler, data):
    handler.send_response(200)
    handler.send_header("Content-Length", str(len(data)))
    handler.end_headers()
    handler.wfile.write(data)


def fetched(folder, mirrors, limits=FAST, files=(FILE,), **keywords):
    fetch(files, folder, mirrors, limits, **keywords)
    assert (folder / "a.gz").read_bytes() == DATA
    assert not (folder / ("a.gz" + PART)).exists()


def test_a_complete_download(server, tmp_path):
    mirror = server.mirror("good", CONTENTS)
    arrived = []

    fetched(tmp_path, [mirror], arrived=lambda file, url: arrived.append((file, url)))

    assert server.requests == [("HEAD", "good/a.gz", None), ("GET", "good/a.gz", None)]
    assert arrived == [(FILE, mirror + "a.gz")]
    assert [path.name for path in tmp_path.iterdir()] == ["a.gz"]


def test_progress_runs_over_all_files_to_the_total(server, tmp_path):
    other = KnownFile("b.gz", 5, hashlib.sha256(b"12345").hexdigest())
    seen = []

    fetched(
        tmp_path,
        [server.mirror("good", {**CONTENTS, "b.gz": b"12345"})],
        files=(FILE, other),
        progress=lambda *arguments: seen.append(arguments),
    )

    done = [entry[1] for entry in seen]
    host = server.address[len("http://") :]
    assert seen[0] == (f"a.gz from {host}", 0, len(DATA) + 5)
    assert seen[-1] == (f"b.gz from {host}", len(DATA) + 5, len(DATA) + 5)
    assert done == sorted(done)
    assert len(DATA) in done


def test_a_body_that_breaks_off_is_resumed(server, tmp_path, whole_answer):
    fetched(tmp_path, [server.mirror("weak", CONTENTS, breaks_once(70_000, whole_answer))])

    assert server.gets() == [("weak/a.gz", None), ("weak/a.gz", "bytes=70000-")]


def test_a_server_that_ignores_the_range_restarts(server, tmp_path):
    fetched(tmp_path, [server.mirror("weak", CONTENTS, breaks_once(70_000, ignores_ranges))])

    assert server.gets() == [("weak/a.gz", None), ("weak/a.gz", "bytes=70000-")]


def test_another_mirror_goes_on_where_the_first_broke_for_good(server, tmp_path, whole_answer):
    def missing(handler, data):
        handler.send_error(404)

    weak = server.mirror("weak", CONTENTS, breaks_once(70_000, missing))

    fetched(tmp_path, [weak, server.mirror("good", CONTENTS)])

    assert server.gets()[-1] == ("good/a.gz", "bytes=70000-")


def test_a_mirror_that_breaks_off_each_time_is_given_up_after_two_requests(server, tmp_path):
    def breaks_always(handler, data):
        asked = handler.headers.get("Range")
        start = int(asked[len("bytes=") : -1]) if asked else 0
        handler.send_response(206 if start else 200)
        handler.send_header("Content-Range", f"bytes {start}-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data) - start))
        handler.end_headers()
        handler.wfile.write(data[start : start + 1000])
        handler.close_connection = True

    with pytest.raises(DataError, match=r": broke off after 2000 of 256000 bytes\)$"):
        fetch([FILE], tmp_path, [server.mirror("weak", CONTENTS, breaks_always)], FAST)

    assert server.gets() == [("weak/a.gz", None), ("weak/a.gz", "bytes=1000-")]
    assert (tmp_path / ("a.gz" + PART)).read_bytes() == DATA[:2000]


def test_a_mirror_that_sends_nothing_is_not_asked_to_go_on(server, tmp_path):
    with pytest.raises(DataError, match=r": broke off after 0 of 256000 bytes\)$"):
        fetch([FILE], tmp_path, [server.mirror("weak", CONTENTS, breaks_once(0, ignores_ranges))], FAST)

    assert server.gets() == [("weak/a.gz", None)]


def test_a_part_of_an_earlier_run_is_resumed(server, tmp_path):
    (tmp_path / ("a.gz" + PART)).write_bytes(DATA[:100])

    fetched(tmp_path, [server.mirror("good", CONTENTS)])

    assert server.gets() == [("good/a.gz", "bytes=100-")]


def test_a_complete_part_of_an_earlier_run_needs_no_request(server, tmp_path):
    (tmp_path / ("a.gz" + PART)).write_bytes(DATA)

    fetched(tmp_path, [server.mirror("good", CONTENTS)])

    assert server.gets() == []


@pytest.mark.parametrize("length", [100, len(DATA), len(DATA) + 1])
def test_a_part_with_other_bytes_is_dropped_and_the_same_mirror_asked_afresh(server, tmp_path, length):
    (tmp_path / ("a.gz" + PART)).write_bytes(b"?" * length)

    fetched(tmp_path, [server.mirror("good", CONTENTS)])

    assert server.gets()[-1] == ("good/a.gz", None)


def test_a_range_that_the_server_refuses_restarts(server, tmp_path):
    def refuses(handler, data):
        if handler.headers.get("Range"):
            handler.send_error(416)
        else:
            ignores_ranges(handler, data)

    (tmp_path / ("a.gz" + PART)).write_bytes(DATA[:100])

    fetched(tmp_path, [server.mirror("weak", CONTENTS, refuses)])

    assert server.gets() == [("weak/a.gz", "bytes=100-"), ("weak/a.gz", None)]


def test_another_range_than_asked_for_restarts(server, tmp_path):
    def answers_another(handler, data):
        if not handler.headers.get("Range"):
            ignores_ranges(handler, data)
            return
        handler.send_response(206)
        handler.send_header("Content-Range", f"bytes 0-{len(data) - 1}/{len(data)}")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data[:1000])  # appended to the part, these would spoil the next resume too
        handler.close_connection = True

    (tmp_path / ("a.gz" + PART)).write_bytes(DATA[:100])

    fetched(tmp_path, [server.mirror("weak", CONTENTS, answers_another)])

    assert server.gets() == [("weak/a.gz", "bytes=100-"), ("weak/a.gz", None)]


@pytest.mark.parametrize("wrong", [b"<html>", b"?" * len(DATA), DATA + b"more"], ids=["short", "equal", "long"])
def test_wrong_bytes_on_the_first_mirror_and_right_ones_on_the_second(server, tmp_path, wrong):
    mirrors = [server.mirror("wrong", {"a.gz": wrong}), server.mirror("good", CONTENTS)]

    fetched(tmp_path, mirrors)

    assert server.gets()[0] == ("wrong/a.gz", None)
    assert server.gets()[-1] == ("good/a.gz", None)


def test_a_mirror_that_failed_is_tried_last_for_the_other_files(server, tmp_path):
    other = KnownFile("b.gz", 5, hashlib.sha256(b"12345").hexdigest())
    poor = server.mirror("poor", {"b.gz": b"12345"})
    good = server.mirror("good", {**CONTENTS, "b.gz": b"12345"})

    fetched(tmp_path, [poor, good], files=(FILE, other))

    assert server.gets() == [("poor/a.gz", None), ("good/a.gz", None), ("good/b.gz", None)]


def test_a_body_marked_as_gzip_is_kept_as_it_is(server, tmp_path):
    """Some servers declare a .gz file's own compression as the transfer's; unpacking it would change the bytes."""

    def marked(handler, data):
        handler.send_response(200)
        handler.send_header("Content-Encoding", "gzip")
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        handler.wfile.write(data)

    fetched(tmp_path, [server.mirror("marked", CONTENTS, marked)])


def test_a_body_without_a_length(server, tmp_path):
    def unmeasured(handler, data):
        handler.send_response(200)
        handler.end_headers()
        handler.wfile.write(data)
        handler.close_connection = True

    fetched(tmp_path, [server.mirror("old", CONTENTS, unmeasured)])
