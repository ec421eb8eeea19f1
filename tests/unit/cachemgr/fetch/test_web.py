"""Web servers of every kind of goodness, on the loopback."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from random import Random

import pytest

from cachemgr.base.clock import SystemClock
from cachemgr.base.errors import SourceFailed
from cachemgr.fetch.engine import transfer
from cachemgr.fetch.faults import SourceFault, TransferFailed
from cachemgr.fetch.ports import Stream
from cachemgr.fetch.report import Delivered, Report
from cachemgr.fetch.sources.connect import WebSettings
from cachemgr.fetch.sources.sources import SourceSettings, resolve, source_of
from tests.unit.cachemgr.fetch.fakes import FakeSink
from tests.unit.cachemgr.fetch.servers import Answer, Asked, file_server, head, serving

DATA = Random(11).randbytes(1_500_000)
CLOCK = SystemClock()


def fetch(
    sink: FakeSink, *uris: str, settings: SourceSettings | None = None, validator: str | None = None
) -> Report:
    sources = [source_of(uri, settings or SourceSettings(), CLOCK, validator=validator) for uri in uris]
    return transfer(sink, sources, clock=CLOCK, random=Random(3))


def read_all(stream: Stream, room: memoryview) -> None:
    # None is not the end: nothing has come yet.
    while stream.read_into(room, 5) != 0:
        pass


def sink_with(have_bytes: int = 0) -> FakeSink:
    sink = FakeSink(len(DATA))
    sink.data += DATA[:have_bytes]
    return sink


def test_whole_file_arrives() -> None:
    sink = sink_with()
    with serving(file_server(DATA)) as server:
        fetch(sink, server.uri())

    assert sink.data == DATA


def test_size_name_and_validator_are_found_by_head() -> None:
    with serving(file_server(DATA)) as server:
        found = resolve(server.uri("/a/b%20c.qcow2?v=1"), SourceSettings(), CLOCK)

    assert (found.size_bytes, found.name, found.validator) == (len(DATA), "b c.qcow2", '"one"')
    assert [asked.method for asked in server.asked] == ["HEAD"]


@pytest.mark.parametrize(
    "refusal", ["403 Forbidden", "405 Method Not Allowed", "501 Not Implemented", "200 OK"]
)
def test_size_is_found_by_a_range_where_head_is_refused_or_says_nothing(refusal: str) -> None:
    good = file_server(DATA)

    def answer(asked: Asked, sock: socket.socket) -> None:
        if asked.method == "HEAD":
            sock.sendall(head(refusal))
        else:
            good(asked, sock)

    with serving(answer) as server:
        found = resolve(server.uri(), SourceSettings(), CLOCK)

    assert found.size_bytes == len(DATA)
    assert server.asked[1].headers["range"] == "bytes=0-0"


def test_server_that_does_not_tell_the_size_is_refused() -> None:
    with (
        serving(lambda asked, sock: sock.sendall(head("200 OK"))) as server,
        pytest.raises(SourceFailed, match="does not say how large it is"),
    ):
        resolve(server.uri(), SourceSettings(), CLOCK)


def test_transfer_goes_on_with_a_range_on_condition_that_the_file_is_the_same() -> None:
    sink = sink_with(700_000)
    with serving(file_server(DATA)) as server:
        report = fetch(sink, server.uri(), validator='"one"')

    assert sink.data == DATA
    assert report.skipped_bytes == 0
    assert server.asked[0].headers["range"] == "bytes=700000-"
    assert server.asked[0].headers["if-range"] == '"one"'


def test_server_without_ranges_sends_all_and_the_beginning_is_thrown_away() -> None:
    sink = sink_with(700_000)
    with serving(file_server(DATA, knows_ranges=False)) as server:
        report = fetch(sink, server.uri(), validator='"one"')

    assert sink.data == DATA
    assert report.skipped_bytes == 700_000


@pytest.mark.parametrize("have_bytes", [0, 700_000])
def test_file_that_changed_under_way_is_noticed(have_bytes: int) -> None:
    with (
        serving(file_server(DATA, etag='"two"')) as server,
        pytest.raises(TransferFailed, match='changed: its validator is "two" and was "one"'),
    ):
        fetch(sink_with(have_bytes), server.uri(), validator='"one"')

    assert len(server.asked) == 1


def test_file_of_another_size_is_noticed() -> None:
    with (
        serving(file_server(DATA + b"more")) as server,
        pytest.raises(TransferFailed, match="it has 1500004 bytes instead of 1500000"),
    ):
        fetch(sink_with(5), server.uri())


def test_file_that_became_shorter_than_what_is_here_is_noticed() -> None:
    with (
        serving(lambda asked, sock: sock.sendall(head("416 Range Not Satisfiable"))) as server,
        pytest.raises(TransferFailed, match="it ends before byte 700000"),
    ):
        fetch(sink_with(700_000), server.uri())


def test_wrong_range_is_not_taken_for_the_right_one() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("206 Partial Content", Content_Range=f"bytes 0-{len(DATA) - 1}/{len(DATA)}"))
        sock.sendall(DATA)

    sink = sink_with(700_000)
    with serving(answer) as server, serving(file_server(DATA)) as good:
        report = fetch(sink, server.uri(), good.uri())

    assert sink.data == DATA
    assert report.said[0].message == "asked for bytes from 700000, the server sends those from 0"


def test_short_body_is_gone_on_with_elsewhere() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Content_Length=str(len(DATA))) + DATA[:400_000])

    sink = sink_with()
    with serving(answer) as server, serving(file_server(DATA)) as good:
        report = fetch(sink, server.uri(), good.uri())

    assert sink.data == DATA
    assert report.delivered[0] == Delivered(server.uri(), 0, 400_000)
    assert good.asked[0].start() == 400_000


def test_more_than_was_announced_is_not_read() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Content_Length="1000") + DATA[:5000])

    room = memoryview(bytearray(10_000))
    with serving(answer) as server:
        stream = source_of(server.uri(), SourceSettings(), CLOCK).open(0, 1000, 5)
        counts = [stream.read_into(room, 5), stream.read_into(room, 5)]
        stream.close()

    assert counts == [1000, 0]


def test_server_that_dies_is_gone_on_with_when_it_is_back() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        if len(server.asked) == 1:
            sock.sendall(head("200 OK", Content_Length=str(len(DATA))) + DATA[:400_000])
            # A reset instead of an orderly end, as of a machine that was killed.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        else:
            file_server(DATA)(asked, sock)

    sink = sink_with()
    with serving(answer) as server:
        fetch(sink, server.uri())

    assert sink.data == DATA


@pytest.mark.parametrize(
    ("status", "times"),
    [("404 Not Found", 1), ("401 Unauthorized", 1), ("410 Gone", 1), ("500 Oops", 2), ("503 Busy", 2)],
)
def test_refusals_that_pass_are_asked_again_and_others_are_not(status: str, times: int) -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        if len(server.asked) == 1:
            sock.sendall(head(status, Content_Length="0"))
        else:
            file_server(DATA)(asked, sock)

    sink = sink_with()
    with serving(answer) as server:
        if times == 1:
            with pytest.raises(TransferFailed, match=f"the server says {status}"):
                fetch(sink, server.uri())
        else:
            fetch(sink, server.uri())

    assert len(server.asked) == times


def test_chunks_are_put_together() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Transfer_Encoding="chunked"))
        at = 0
        for size in (1, 100_000, 7, len(DATA) - 100_008):
            sock.sendall(b"%x;note=x\r\n" % size + DATA[at : at + size] + b"\r\n")
            at += size
        sock.sendall(b"0\r\n\r\n")

    sink = sink_with()
    with serving(answer) as server:
        fetch(sink, server.uri())

    assert sink.data == DATA


@pytest.mark.parametrize(
    "chunk", [b"zz\r\nabc", b"-1\r\nabc", b"\r\nabc", b"5\r\nabcdeXX3\r\nabc\r\n", b"f" * 70_000]
)
def test_malformed_chunks_are_a_fault(chunk: bytes) -> None:
    answer: Answer = lambda asked, sock: sock.sendall(head("200 OK", Transfer_Encoding="chunked") + chunk)  # noqa: E731
    room = memoryview(bytearray(100))
    with serving(answer) as server:
        stream = source_of(server.uri(), SourceSettings(), CLOCK).open(0, len(DATA), 5)
        with pytest.raises(SourceFault, match="malformed"):
            read_all(stream, room)
        stream.close()

    assert len(server.asked) == 1


def test_server_that_says_nothing_but_what_stands_around_chunks_can_be_left() -> None:
    is_read = threading.Event()

    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Transfer_Encoding="chunked") + b"1;note=")
        # Letter by letter, as long as somebody listens.
        while not is_read.wait(0.01):
            sock.sendall(b"x")

    room = memoryview(bytearray(100))
    with serving(answer) as server:
        stream = source_of(server.uri(), SourceSettings(), CLOCK).open(0, len(DATA), 5)
        told = [stream.read_into(room, 0.2) for _ in range(5)]
        is_read.set()
        stream.close()

    assert told == [None] * 5


def test_chunks_with_more_around_them_than_in_them_are_a_fault() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Transfer_Encoding="chunked"))
        while True:
            sock.sendall(b"1;note=" + b"x" * 1000 + b"\r\nA\r\n")

    room = memoryview(bytearray(100))
    with serving(answer) as server:
        stream = source_of(server.uri(), SourceSettings(), CLOCK).open(0, len(DATA), 5)
        with pytest.raises(SourceFault, match="more around them than in them"):
            read_all(stream, room)
        stream.close()

    assert len(server.asked) == 1


def test_redirects_are_followed_to_the_end() -> None:
    good = file_server(DATA)

    def answer(asked: Asked, sock: socket.socket) -> None:
        if asked.target == "/end":
            good(asked, sock)
        else:
            sock.sendall(head("302 Found", Location="/end", Content_Length="0"))

    sink = sink_with()
    with serving(answer) as server:
        fetch(sink, server.uri("/begin"))

    assert sink.data == DATA


def test_redirects_in_a_circle_end() -> None:
    with (
        serving(lambda asked, sock: sock.sendall(head("302 Found", Location="/again"))) as server,
        pytest.raises(SourceFailed, match="more than 5 redirects"),
    ):
        resolve(server.uri(), SourceSettings(), CLOCK)

    assert len(server.asked) == 6


@pytest.mark.parametrize(
    "target", ["file:///etc/passwd", "ftp://h/x", "ssh://h/x", "http://-h/x", "http://h:x/", ""]
)
def test_redirect_to_something_else_is_not_followed(target: str) -> None:
    answer: Answer = lambda asked, sock: sock.sendall(head("302 Found", Location=target))  # noqa: E731
    with serving(answer) as server, pytest.raises(SourceFailed, match=r"redirect|no other address"):
        resolve(server.uri(), SourceSettings(), CLOCK)

    assert len(server.asked) == 1 or target == ""


def test_password_goes_to_the_host_of_the_uri_and_not_along_a_redirect() -> None:
    with serving(file_server(DATA)) as other:
        answer: Answer = lambda asked, sock: sock.sendall(head("302 Found", Location=other.uri()))  # noqa: E731
        with serving(answer) as server:
            resolve(f"http://ada:secret@127.0.0.1:{server.port}/x", SourceSettings(), CLOCK)

    assert server.asked[0].headers["authorization"] == "Basic YWRhOnNlY3JldA=="
    assert "authorization" not in other.asked[0].headers


def test_password_of_the_sites_netrc_file_is_used_and_that_of_no_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login home password no\n")
    (tmp_path / "site").write_text("machine 127.0.0.1 login ada password secret\n")
    (tmp_path / "site").chmod(0o600)
    monkeypatch.setenv("HOME", str(tmp_path))
    with serving(file_server(DATA)) as server:
        resolve(server.uri(), SourceSettings(), CLOCK)
        resolve(server.uri(), SourceSettings(web=WebSettings(netrc_file=str(tmp_path / "site"))), CLOCK)

    assert "authorization" not in server.asked[0].headers
    assert server.asked[1].headers["authorization"] == "Basic YWRhOnNlY3JldA=="


def test_proxy_of_the_environment_is_asked_with_the_whole_uri() -> None:
    with serving(file_server(DATA)) as proxy:
        environment = {"http_proxy": f"http://me:pw@127.0.0.1:{proxy.port}"}
        resolve("http://far.example/x", SourceSettings(web=WebSettings(environment=environment)), CLOCK)

    assert proxy.asked[0].target == "http://far.example/x"
    assert proxy.asked[0].headers["proxy-authorization"] == "Basic bWU6cHc="


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_hosts_of_no_proxy_are_asked_directly(name: str) -> None:
    with serving(file_server(DATA)) as server:
        environment = {"http_proxy": "http://127.0.0.1:9", name: "x.example, 127.0.0.1"}
        found = resolve(server.uri(), SourceSettings(web=WebSettings(environment=environment)), CLOCK)

    assert found.size_bytes == len(DATA)


def test_encoded_answer_is_refused_because_its_bytes_differ() -> None:
    answer: Answer = lambda asked, sock: sock.sendall(  # noqa: E731
        head("200 OK", Content_Length="10", Content_Encoding="gzip")
    )
    with serving(answer) as server, pytest.raises(SourceFailed, match="encoded as gzip"):
        resolve(server.uri(), SourceSettings(), CLOCK)

    assert server.asked[0].headers["accept-encoding"] == "identity"


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b"SSH-2.0-OpenSSH\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 2000 x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n", "malformed header"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"y" * 70_000, "longer than 65536"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 20, "only interim answers"),
        (b"", "closed before an answer"),
        (b"HTTP/1.1 200", "closed before an answer"),
    ],
)
def test_answer_that_is_not_http_is_a_fault_and_not_a_traceback(data: bytes, complaint: str) -> None:
    with (
        serving(lambda asked, sock: sock.sendall(data)) as server,
        pytest.raises(SourceFailed, match=complaint),
    ):
        resolve(server.uri(), SourceSettings(), CLOCK)

    assert server.asked


def test_head_that_drips_does_not_outlast_the_time_limit() -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        while not server.is_closing.wait(0.02):
            sock.sendall(b"H")

    with serving(answer) as server:
        begin_s = CLOCK.monotonic_s()
        with pytest.raises(SourceFailed, match="no answer within"):
            resolve(server.uri(), SourceSettings(), CLOCK, timeout_s=0.3)
        duration_s = CLOCK.monotonic_s() - begin_s

    assert 0.2 < duration_s < 2


def test_silent_server_is_left_for_another(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(head("200 OK", Content_Length=str(len(DATA))) + DATA[:400_000])
        server.is_closing.wait(30)

    monkeypatch.setattr("cachemgr.fetch.pump.LEAST_ORIGIN_S", 0.2)
    sink = sink_with()
    with serving(answer) as server, serving(file_server(DATA)) as good:
        report = fetch(sink, server.uri(), good.uri())

    assert sink.data == DATA
    assert report.said[0].message.startswith("it was silent for ")
    assert good.asked[0].start() == 400_000


def test_nobody_listening_is_a_fault_that_names_the_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

    with pytest.raises(SourceFailed, match=f"127.0.0.1 port {port}: Connection refused"):
        resolve(f"http://127.0.0.1:{port}/x", SourceSettings(), CLOCK)


@pytest.mark.parametrize(
    ("status", "header"), [("200 OK", "Content-Length"), ("503 Service Unavailable", "Retry-After")]
)
def test_digits_without_end_are_a_fault_of_the_source(status: str, header: str) -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(f"HTTP/1.1 {status}\r\n{header}: {'9' * 5000}\r\n\r\n".encode())

    with serving(answer) as server, pytest.raises(SourceFailed, match=r"does not say how large|says 503"):
        resolve(server.uri(), SourceSettings(), CLOCK, timeout_s=1)


@pytest.mark.parametrize("host", ["a..b", "a" * 64])
def test_host_that_no_name_can_be_is_a_fault_even_when_redirected_to(host: str) -> None:
    def answer(asked: Asked, sock: socket.socket) -> None:
        sock.sendall(f"HTTP/1.1 302 Found\r\nLocation: http://{host}/x\r\n\r\n".encode())

    with serving(answer) as server, pytest.raises(SourceFailed, match="not the name of a host"):
        resolve(server.uri(), SourceSettings(), CLOCK, timeout_s=1)
