"""The server under hostile and impatient clients: real processes, real sockets, real work."""

import asyncio
import json
import re
import select
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NamedTuple

import pytest
from tokenizers import Regex, pre_tokenizers

from attendo.look import answers
from attendo.serve.guard import Limits, RequestError, is_loopback, parse_host
from attendo.serve.library import Library
from attendo.serve.queues import Queue, WorkError
from servers import send
from small_runs import small_run

pytestmark = pytest.mark.slow

SLOW = {"source": "The dog sleeps. " * 1250, "beam": 16}
"""Minutes of work for a model that has learned nothing and does not stop."""

QUICK = {"source": "The dog sleeps.", "beam": 1}


class Server(NamedTuple):
    """A server in a process of its own."""

    port: int
    process: subprocess.Popen
    log: IO[str]

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def connect(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.port), timeout=30)

    def exchange(self, message: bytes) -> bytes:
        """Send bytes and read until the server closes the connection."""
        with self.connect() as client:
            client.sendall(message)
            return read_all(client)

    def translation_of(self) -> str:
        """Read what it has written to standard error."""
        self.log.seek(0)
        return self.log.read()

    def memory(self) -> int:
        """Return the resident memory in bytes."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def read_all(client: socket.socket) -> bytes:
    parts = []
    try:
        while part := client.recv(65536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def post(body: object, *headers: str, path: str = "/api/translate") -> bytes:
    """Write a request by hand; the server is to close the connection after it."""
    data = json.dumps(body).encode()
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: localhost",
        "Connection: close",
        "Content-Type: application/json",
        f"Content-Length: {len(data)}",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode() + data


def status_of(response: bytes) -> int:
    return int(response.split(b" ", 2)[1])


def error_of(response: bytes) -> str:
    """Return the message of an error, which must have our headers and one line of JSON."""
    head, _, body = response.partition(b"\r\n\r\n")
    assert b"content-security-policy: default-src 'none'" in head.lower()
    assert b"x-content-type-options: nosniff" in head.lower()
    found = json.loads(body)
    assert set(found) == {"error"}
    return found["error"]


START = """
import json, sys
from attendo.serve.running import run_server
run, host, limits = sys.argv[1:]
ready = lambda address: print("open", address, file=sys.stderr, flush=True)
run_server([run], host, 0, "cpu", ready, **json.loads(limits))
"""


def limited(run: Path, host: str = "127.0.0.1", **limits: float) -> AbstractContextManager[Server]:
    """Start a server with limits of its own."""
    return started("-c", START, run, host, json.dumps(limits))


@contextmanager
def started(*words: object) -> Iterator[Server]:
    """Start Python, wait until a server in it is ready, and kill it in the end."""
    with TemporaryFile("w+") as log:
        process = subprocess.Popen([sys.executable, *map(str, words)], stderr=log)
        try:
            yield Server(wait_for_port(process, log), process, log)
        finally:
            process.kill()
            process.wait(timeout=20)


def wait_for_port(process: subprocess.Popen, log: IO[str]) -> int:
    for _ in range(900):
        log.seek(0)
        if found := re.search(r"^open http://\S+:(\d+)$", log.read(), re.MULTILINE):
            return int(found[1])
        assert process.poll() is None
        time.sleep(0.1)
    raise TimeoutError


@pytest.fixture(scope="module")
def slow_run(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("slow") / "run"
    model = {"model.d_model": 64, "model.n_heads": 4, "training.steps": 1}
    search = {"decoding.strategy": "beam", "decoding.max_extra": 100, "decoding.max_loops": 0}
    small_run(folder, {**model, **search, "training.warmup_steps": 1})
    return folder


@pytest.fixture(scope="module")
def server(slow_run) -> Iterator[Server]:
    """A server that hostile clients share."""
    with limited(slow_run) as found:
        yield found


def send_slow(server: Server) -> socket.socket:
    """Send a request that takes minutes; returns its connection."""
    client = server.connect()
    client.sendall(post(SLOW))
    return client


def seconds_for_quick(server: Server) -> float:
    start = time.perf_counter()
    status, found, _ = send(server.address, "/api/translate", QUICK)
    while status == 504 and time.perf_counter() - start < 30:  # a busy machine
        status, found, _ = send(server.address, "/api/translate", QUICK)
    assert status == 200, found
    return time.perf_counter() - start


def test_bytes_are_counted_whatever_the_headers_say(server):
    send(server.address, "/api/models")
    before = server.memory()
    chunk = b"10000\r\n" + b"x" * 65536 + b"\r\n"
    with server.connect() as client:
        head = (
            "POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        )
        lengths = "Content-Length: 10\r\nTransfer-Encoding: chunked\r\n\r\n"
        client.sendall((head + lengths).encode())
        try:
            for _ in range(800):  # 50 MB
                client.sendall(chunk)
            client.sendall(b"0\r\n\r\n")
        except (ConnectionResetError, BrokenPipeError):
            pass
        response = read_all(client)
    assert status_of(response) == 413
    assert "200,000 bytes" in error_of(response)
    assert server.memory() - before < 20e6


def test_a_large_body_is_refused_before_it_is_sent(server):
    head = b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000000\r\n"
    response = server.exchange(head + b"Expect: 100-continue\r\n\r\n")
    assert status_of(response) == 413
    assert "200,000 bytes" in error_of(response)


@pytest.mark.parametrize(
    "host",
    [
        "Host: a{b.evil.example",
        "Host:",
        "Host: evil.com:",
        "Host: evil.com:99999",
        "Host: evil.com",
        "Host: localhost:",
        "Host: localhost:0x50",
        "Host: localhost@evil.com",
        "Host: localhost.evil.com",
        "Host: 127.0.0.1.evil.com",
        "Host: 128.0.0.1",
        "Host: [::2]",
        "Host: [::1",
        "Host: ::1",
        "Host: [localhost]",
        "Host: localhost\r\nHost: localhost",
        "X: no host at all",
    ],
)
def test_other_and_malformed_hosts_are_refused(server, host):
    for version in ("1.0", "1.1"):
        request = f"GET /api/models HTTP/{version}\r\n{host}\r\nConnection: close\r\n\r\n"
        response = server.exchange(request.encode())
        assert status_of(response) in (400, 403)
        assert error_of(response)
        assert b"models" not in response


@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:1", "127.0.0.1:8000", "127.1.2.3", "[::1]:80", "[::1]"]
)
def test_every_loopback_host_is_answered(server, host):
    request = f"GET /api/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
    assert status_of(server.exchange(request.encode())) == 200


def test_every_loopback_address_is_guarded(slow_run):
    with limited(slow_run, "127.0.0.2") as server:
        for host, status in (("evil.example", 403), ("127.0.0.2", 200), ("localhost", 200)):
            request = f"GET /api/models HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"
            with socket.create_connection(("127.0.0.2", server.port), timeout=30) as client:
                client.sendall(request.encode())
                assert status_of(read_all(client)) == status


def test_hosts_are_parsed_strictly():
    assert parse_host("my-host.example:65535") == "my-host.example"
    assert parse_host("[0:0::1]:1") == "::1"
    for host in (
        "",
        "a b",
        "a..b",
        ".a",
        "a.",
        "-a",
        "a:",
        "a:0",
        "a:65536",
        "a:１",
        "[::1]x",
        "ä",
    ):
        assert parse_host(host) is None, host
    assert is_loopback("::ffff:127.0.0.1")
    assert not is_loopback("::ffff:8.8.8.8")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        (["Sec-Fetch-Site: cross-site", "Origin: http://evil.example"], 403),
        (["Sec-Fetch-Site: same-site", "Origin: http://localhost:9"], 403),
        (["Origin: http://evil.example"], 403),
        (["Origin: http://localhost:9"], 403),
        (["Origin: null"], 403),
        (["Origin: http://localhost"], 200),
        (["Sec-Fetch-Site: same-origin", "Origin: http://localhost"], 200),
        ([], 200),
    ],
)
def test_pages_of_other_sites_cannot_start_work(server, headers, status):
    response = server.exchange(post(QUICK, *headers))
    assert status_of(response) == status
    if status == 403:
        assert "another site" in error_of(response)


@pytest.mark.parametrize(
    "message",
    [
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nBad Header: x\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 200_000 + b"\r\n\r\n",
        b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n"
        b"Transfer-Encoding: chunked\r\n\r\nnot a chunk\r\n",
    ],
)
def test_what_is_not_http_is_refused_in_json(server, message):
    response = server.exchange(message)
    assert status_of(response) == 400
    assert "not valid HTTP" in error_of(response)


def test_a_cancelled_request_stops(server):
    with send_slow(server):
        time.sleep(2)  # it is being worked on
    assert seconds_for_quick(server) < 30


def test_requests_that_wait_do_not_hold_up_the_others(server):
    clients = [send_slow(server) for _ in range(Limits().waiting + 4)]
    try:
        refused = answered(clients, 3)
        assert len(refused) == 3  # one is being worked on, and 16 wait
        for client in refused:
            response = read_all(client)
            assert status_of(response) == 503
            assert b"retry-after: 2" in response.lower()
            assert "busy" in error_of(response)
        for path in ("/api/models", "/", "/explorer/main.js", "/docs", "/api/walk/code"):
            start = time.perf_counter()
            assert send(server.address, path)[0] == 200
            assert time.perf_counter() - start < 10, path
        status, found, _ = send(server.address, "/api/walk", {"source": "The dog sees the cat."})
        assert status == 200, found  # inspections have a queue of their own
    finally:
        for client in clients:
            client.close()
    assert seconds_for_quick(server) < 30


def answered(clients: list[socket.socket], n_expected: int) -> list[socket.socket]:
    """Wait for so many responses, and a second for more; return the connections that have one."""
    deadline = time.monotonic() + 60
    found: list[socket.socket] = []
    while len(found) < n_expected and time.monotonic() < deadline:
        time.sleep(0.05)
        found, _, _ = select.select(clients, [], [], 0)
    time.sleep(1)
    return select.select(clients, [], [], 0)[0]


def test_inspections_stop_as_well(slow_run):
    """Heads are ablated in copies of the model, which must stop like the model."""
    library = Library([str(slow_run)], "cpu")
    translator, recorded = library.look("", "The dog sleeps.", "Der Hund", [])
    queue = Queue("test", Limits(time_limit=1.0))

    def endless() -> None:
        while True:
            answers.ablation_json(translator, recorded)

    async def ask_twice() -> str:
        with pytest.raises(RequestError, match="1 seconds"):
            await queue.run(endless)
        return await asyncio.wait_for(queue.run(lambda: "free again"), 20)

    assert asyncio.run(ask_twice()) == "free again"


@pytest.fixture(scope="module")
def impatient(slow_run) -> Iterator[Server]:
    """A server whose limits are reached soon."""
    limits = {"time_limit": 2, "header_seconds": 1, "body_seconds": 1, "write_seconds": 1}
    with limited(slow_run, connections=4, **limits) as found:
        yield found


def test_requests_end_at_the_time_limit(impatient):
    start = time.perf_counter()
    with ThreadPoolExecutor(3) as pool:
        found = list(pool.map(impatient.exchange, [post(SLOW)] * 3))
    assert time.perf_counter() - start < 60
    for response in found:
        assert status_of(response) == 504
        assert "2 seconds" in error_of(response)
    assert seconds_for_quick(impatient) < 30


@pytest.mark.parametrize(
    ("begun", "missing"),
    [
        (b"GET /api/models HTTP/1.1\r\nHost: localhost\r\n", "headers"),
        (b"G", "headers"),
        (post(QUICK)[:-5], "body"),
        (b"POST /api/translate HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n", "body"),
    ],
)
def test_half_sent_requests_time_out(impatient, begun, missing):
    start = time.perf_counter()
    response = impatient.exchange(begun)
    assert time.perf_counter() - start < 15
    assert status_of(response) == 408
    assert f"the {missing} did not arrive within 1 seconds" in error_of(response)


def test_a_dripping_request_times_out(impatient):
    start = time.perf_counter()
    with impatient.connect() as client:
        try:
            for byte in b"GET / HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * 100:
                client.sendall(bytes([byte]))
                time.sleep(0.2)
        except (BrokenPipeError, ConnectionResetError):
            pass
    assert time.perf_counter() - start < 15


def test_a_silent_connection_is_closed(impatient):
    assert impatient.exchange(b"") == b""


def test_a_client_that_reads_nothing_is_disconnected(impatient):
    request = b"GET /style.css HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with impatient.connect() as client:
        client.settimeout(1)
        sent = 0
        try:
            while sent < 50_000:
                sent += client.send(request)
        except TimeoutError:
            pass
        except (ConnectionResetError, BrokenPipeError):
            return
        time.sleep(4)
        client.settimeout(10)
        with pytest.raises((ConnectionResetError, BrokenPipeError)):  # noqa: PT012
            while True:
                client.send(request)
                time.sleep(0.01)


def test_connections_are_limited(impatient):
    idle = [impatient.connect() for _ in range(4)]
    response = impatient.exchange(b"GET /api/models HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert status_of(response) == 503
    assert "too many connections" in error_of(response)
    for client in idle:
        client.close()
    time.sleep(1)
    assert send(impatient.address, "/api/models")[0] == 200


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_the_server_and_its_work(slow_run, number):
    command = ("-m", "attendo", "serve", slow_run, "--port", 0, "--engine", "torch")
    with started(*command) as server, send_slow(server) as client:
        time.sleep(1)
        server.process.send_signal(number)
        assert server.process.wait(timeout=30) in (130, -number)
        assert "Traceback" not in server.translation_of()
        assert error_of(read_all(client)) == "the server is stopping"
        with pytest.raises(ConnectionRefusedError):
            server.connect()


def test_a_panic_of_a_library_is_an_error_of_the_request():
    splitter = pre_tokenizers.Split(Regex("(a+)+$"), "isolated")
    queue = Queue("test", Limits())

    async def ask_twice() -> str:
        with pytest.raises(WorkError, match="PanicException"):
            await queue.run(lambda: splitter.pre_tokenize_str("a" * 40 + "b"))
        return await queue.run(lambda: "still there")

    assert asyncio.run(ask_twice()) == "still there"
