"""``fetch`` when mirrors fail or hang: what is said, and that it ends in time."""

from __future__ import annotations

import hashlib
import socket
import time

import pytest
import requests

from mxdp.datasets import download
from mxdp.datasets.download import PART, Limits, fetch
from mxdp.datasets.known_file import KnownFile
from mxdp.errors import DataError

DATA = bytes(range(256)) * 1000
FILE = KnownFile("a.gz", len(DATA), hashlib.sha256(DATA).hexdigest())
CONTENTS = {"a.gz": DATA}
FAST = Limits(answer=2, stall=5, total=60)
IMPATIENT = Limits(answer=2, stall=0.5, total=60)


def fetched(folder, mirrors, limits):
    fetch([FILE], folder, mirrors, limits)
    assert (folder / "a.gz").read_bytes() == DATA


def test_all_mirrors_fail_and_one_sentence_says_how(server, tmp_path):
    mirrors = [server.mirror("none", {}), server.mirror("wrong", {"a.gz": b"?"}), server.mirror("also-none", {})]

    with pytest.raises(DataError) as caught:
        fetch([FILE], tmp_path, mirrors, FAST)

    host = server.address[len("http://") :]
    assert str(caught.value) == (f"a.gz could not be downloaded ({host}, {host}: 404 Not Found; {host}: wrong bytes)")
    assert server.gets() == [
        ("none/a.gz", None),
        ("wrong/a.gz", None),
        ("wrong/a.gz", "bytes=1-"),
        ("also-none/a.gz", None),
    ]
    assert not (tmp_path / "a.gz").exists()


def test_a_stalled_body_ends_in_time_and_another_mirror_delivers(server, tmp_path):
    def stalls(handler, data):
        if not handler.headers.get("Range"):
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(data)))
            handler.end_headers()
            handler.wfile.write(data[:1000])
            handler.wfile.flush()
        server.over.wait(30)

    fetched(tmp_path, [server.mirror("stalls", CONTENTS, stalls), server.mirror("good", CONTENTS)], IMPATIENT)

    assert server.gets()[-1] == ("good/a.gz", "bytes=1000-")


def test_a_server_that_says_nothing_after_the_request(server, tmp_path):
    def silent(handler, data):
        server.over.wait(30)

    with pytest.raises(DataError, match=r": no answer within 0\.5 s\)$"):
        fetch([FILE], tmp_path, [server.mirror("silent", CONTENTS, silent)], IMPATIENT)


def test_all_silent_mirrors_together_cost_one_time_limit(server, tmp_path):
    """Three limits of 2 s one after the other would be 6 s."""
    mirrors = [server.mirror(f"hangs{i}", CONTENTS, hangs=True) for i in range(3)]
    host = server.address[len("http://") :]
    start = time.monotonic()

    with pytest.raises(DataError, match=rf"\({host}, {host}, {host}: no answer within 2 s\)$"):
        fetch([FILE], tmp_path, mirrors, FAST)

    assert 2 <= time.monotonic() - start < 5.5
    assert server.gets() == []


def test_a_silent_mirror_does_not_keep_the_next_from_delivering(server, tmp_path):
    limits = Limits(answer=1, stall=5, total=60)

    fetched(tmp_path, [server.mirror("hangs", CONTENTS, hangs=True), server.mirror("good", CONTENTS)], limits)


def test_a_name_lookup_that_hangs_is_given_up(tmp_path, monkeypatch, server):
    def hangs(*arguments, **keywords):
        server.over.wait(30)
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", hangs)

    with pytest.raises(DataError, match=r"\(mirror\.invalid: no answer within 0\.2 s\)$"):
        fetch([FILE], tmp_path, ["http://mirror.invalid/"], Limits(answer=0.2))


def test_a_name_that_can_not_be_resolved(tmp_path, monkeypatch):
    def unknown(*arguments, **keywords):
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", unknown)

    with pytest.raises(DataError, match=r"\(mirror\.invalid: its name can't be resolved\)$"):
        fetch([FILE], tmp_path, ["http://mirror.invalid/"], FAST)


def test_a_port_where_nobody_listens(tmp_path):
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{unused.getsockname()[1]}"

        with pytest.raises(DataError, match=rf"\({address}: connection refused\)$"):
            fetch([FILE], tmp_path, [f"http://{address}/"], FAST)


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (requests.exceptions.ProxyError("x"), "the proxy does not answer"),
        (requests.exceptions.SSLError("x"), "its certificate was not accepted"),
        (requests.exceptions.TooManyRedirects("x"), "TooManyRedirects"),
    ],
)
def test_other_failures_in_few_words(tmp_path, monkeypatch, error, words):
    def head(*arguments, **keywords):
        raise error

    monkeypatch.setattr(download.requests, "head", head)

    with pytest.raises(DataError, match=rf"\(mirror\.invalid: {words}\)$"):
        fetch([FILE], tmp_path, ["http://mirror.invalid/"], FAST)


def test_a_dripping_server_ends_at_the_total_limit_and_the_part_is_kept(server, tmp_path):
    """Each drop comes within the stall limit, so only the total limit can end this."""

    def drips(handler, data):
        handler.send_response(200)
        handler.send_header("Content-Length", str(len(data)))
        handler.end_headers()
        for start in range(300):
            if server.over.wait(0.05):
                return
            handler.wfile.write(data[start : start + 1])
            handler.wfile.flush()

    with pytest.raises(DataError, match=r"^a\.gz was not complete when the 1\.5 s for the download were over; "):
        fetch([FILE], tmp_path, [server.mirror("drips", CONTENTS, drips)], Limits(answer=2, stall=5, total=1.5))

    kept = (tmp_path / ("a.gz" + PART)).read_bytes()
    assert 0 < len(kept) < 100
    assert DATA.startswith(kept)


def test_a_folder_that_can_not_be_written(server, tmp_path):
    with pytest.raises(OSError, match="No such file"):
        fetch([FILE], tmp_path / "missing", [server.mirror("good", CONTENTS)], FAST)
