# SPDX-License-Identifier: Apache-2.0
"""Receivers for tests of `flyball export`: small ones that do what they are told, and a Collector."""

import contextlib
import gzip
import json
import shutil
import socket
import subprocess
import threading
import time
from concurrent import futures
from pathlib import Path

import grpc
import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
PATIENCE = 40
SERVICE = "opentelemetry.proto.collector.profiles.v1development.ProfilesService"


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not (value := condition()):
        assert time.monotonic() < end, f"after {PATIENCE} s still not: {what}"
        time.sleep(0.02)
    return value


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


# ------------------------------------------------------------------------------------ HTTP

class Http:
    """HTTP/1.1. Each request is answered by the next of `behaviours`, a function of the connection and the
    body that returns True when the body counts as received; then by `accept`."""

    def __init__(self, *behaviours):
        self.behaviours = list(behaviours)
        self.requests = []  # (path, headers, body) of all
        self.taken = []
        self.answering = threading.Lock()
        self.times = []
        self.over = threading.Event()
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self):
        while not self.over.is_set():
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                connection.settimeout(PATIENCE)
                while self.one(connection):
                    pass

    def one(self, connection):
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            byte = connection.recv(1)
            if not byte:
                return False
            head += byte
        self.times.append(time.monotonic())
        first, *lines = head.decode().split("\r\n")[:-2]
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in lines)}
        behave = self.behaviours.pop(0) if self.behaviours else accept
        if behave is cut_request:
            connection.recv(10)
            return False
        body, length = b"", int(headers["content-length"])
        while len(body) < length:
            if behave is slowly:
                self.over.wait(0.03)
            piece = connection.recv(min(16384, length - len(body)))
            if not piece:
                return False
            body += piece
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        elif headers.get("content-encoding") == "zstd":
            body = subprocess.run(["zstd", "-dc"], input=body, capture_output=True, check=True).stdout
        self.requests.append((first.split()[1], headers, body))
        if behave is hang:
            self.over.wait(PATIENCE)
            return False
        with self.answering:
            if behave(connection, body):
                self.taken.append(body)
                return True
        return False

    @property
    def received(self):
        """Bodies that were taken; an answer that is on its way counts."""
        with self.answering:
            return list(self.taken)

    def close(self):
        self.over.set()
        with contextlib.suppress(OSError):
            self.listener.shutdown(socket.SHUT_RDWR)
        self.listener.close()
        self.thread.join(PATIENCE)


def answer(connection, status, body=b"", kind="application/x-protobuf", headers=()):
    head = f"HTTP/1.1 {status} X\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
    connection.sendall((head + "".join(f"{h}\r\n" for h in headers) + "\r\n").encode() + body)


def accept(connection, _):
    answer(connection, 200)
    return True


def says(status, body=b"", kind="application/x-protobuf", headers=(), takes=False):
    def behave(connection, _):
        answer(connection, status, body, kind, headers)
        return takes
    return behave


def slowly(connection, body):
    """Reads in drops."""
    return accept(connection, body)


def hang(connection, _):
    """Never answers: done where it is called."""


def cut_request(connection, _):
    """Closes in the middle of what is sent: done where it is called."""


def cut_answer(connection, _):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\nContent-Length: 500\r\n\r\n\x0a")
    return False


def garbage(connection, _):
    connection.sendall(bytes(range(256)) * 16)
    return False


class Huge:
    """A gibibyte as an answer."""

    def __init__(self):
        self.sent = 0

    def __call__(self, connection, _):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/x-protobuf\r\n"
                           b"Content-Length: 1073741824\r\n\r\n")
        zeros = bytes(65536)
        with contextlib.suppress(OSError):
            while self.sent < 1 << 30:
                self.sent += connection.send(zeros)
        return False


@pytest.fixture
def http():
    kept = []

    def start(*behaviours):
        kept.append(Http(*behaviours))
        return kept[-1]
    yield start
    for one in kept:
        one.close()


# ------------------------------------------------------------------------------------ gRPC

def varint(n):
    out = b""
    while n > 127:
        out, n = out + bytes([n & 127 | 128]), n >> 7
    return out + bytes([n])


def field(number, data):
    return varint(number << 3 | 2) + varint(len(data)) + data


def retry_info(seconds, nanos=0):
    """google.rpc.Status with a RetryInfo, as grpc-status-details-bin has it."""
    duration = b"\x08" + varint(seconds) + (b"\x10" + varint(nanos) if nanos else b"")
    any_ = field(1, b"type.googleapis.com/google.rpc.RetryInfo") + field(2, field(1, duration))
    return b"\x08\x08" + field(2, b"slow down") + field(3, any_)


class Grpc:
    """Answers by `behaviours`, functions of the context that may abort or return a response's bytes."""

    def __init__(self, *behaviours, service=SERVICE, method="Export", credentials=None, options=()):
        self.behaviours = list(behaviours)
        self.received, self.times, self.metadata = [], [], []
        self.over = threading.Event()
        self.server = grpc.server(futures.ThreadPoolExecutor(4), options=[("grpc.so_reuseport", 0), *options])
        handler = grpc.unary_unary_rpc_method_handler(self.handle)
        self.server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        if credentials:
            self.port = self.server.add_secure_port("127.0.0.1:0", credentials)
            self.url = f"https://localhost:{self.port}"
        else:
            self.port = self.server.add_insecure_port("127.0.0.1:0")
            self.url = f"http://127.0.0.1:{self.port}"
        self.server.start()

    def handle(self, request, context):
        self.times.append(time.monotonic())
        self.metadata.append(dict(context.invocation_metadata()))
        response = self.behaviours.pop(0)(context) if self.behaviours else b""
        self.received.append(request)
        return response or b""

    def close(self):
        self.over.set()
        self.server.stop(None).wait(PATIENCE)


def aborts(code, text="", details=None):
    def behave(context):
        if details is not None:
            context.set_trailing_metadata((("grpc-status-details-bin", details),))
        context.abort(code, text)
    return behave


@pytest.fixture
def grpc_receiver():
    kept = []

    def start(*behaviours, **options):
        kept.append(Grpc(*behaviours, **options))
        return kept[-1]
    yield start
    for one in kept:
        one.close()


# ------------------------------------------------------------------------------------ certificates

class Certificates:
    def __init__(self, directory):
        self.directory = directory
        self.make("ca")
        self.make("other")
        self.sign("server", days=2)
        self.sign("client", days=2)
        self.sign("expired", days=-1)

    def run(self, *args):
        subprocess.run(["openssl", *map(str, args)], cwd=self.directory, check=True, capture_output=True)

    def key(self, name):
        return ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-keyout", f"{name}.key"]

    def make(self, name):
        self.run("req", "-x509", *self.key(name), "-out", f"{name}.pem", "-subj", f"/CN={name}", "-days", 2)

    def sign(self, name, days):
        self.run("req", *self.key(name), "-out", f"{name}.csr", "-subj", "/CN=localhost")
        (self.directory / "names").write_text("subjectAltName=DNS:localhost,IP:127.0.0.1")
        self.run("x509", "-req", "-in", f"{name}.csr", "-CA", "ca.pem", "-CAkey", "ca.key", "-CAcreateserial",
                 "-days", days, "-extfile", "names", "-out", f"{name}.pem")

    def path(self, name):
        return self.directory / name

    def grpc(self, name, need_client=False):
        pair = (self.path(f"{name}.key").read_bytes(), self.path(f"{name}.pem").read_bytes())
        return grpc.ssl_server_credentials([pair], self.path("ca.pem").read_bytes() if need_client else None,
                                           need_client)


@pytest.fixture(scope="session")
def certificates(tmp_path_factory):
    return Certificates(tmp_path_factory.mktemp("certificates"))


# ------------------------------------------------------------------------------------ Collector

class Collector:
    """A real OpenTelemetry Collector; gRPC and HTTP, each plain, with TLS, and with mutual TLS."""

    def __init__(self, binary, directory, certificates):
        self.out, self.log = directory / "received.json", directory / "collector.log"
        self.ports = {}
        receivers = {}
        tls = {"cert_file": str(certificates.path("server.pem")), "key_file": str(certificates.path("server.key"))}
        for name, options in (("plain", {}), ("tls", {"tls": tls}),
                              ("mutual", {"tls": {**tls, "client_ca_file": str(certificates.path("ca.pem"))}})):
            ports = {"grpc": free_port(), "http": free_port()}
            receivers[f"otlp/{name}"] = {"protocols": {
                kind: {"endpoint": f"127.0.0.1:{port}", **options} for kind, port in ports.items()}}
            self.ports[name] = ports
        config = {"receivers": receivers,
                  "exporters": {"file": {"path": str(self.out), "flush_interval": "50ms"}},
                  "service": {"telemetry": {"metrics": {"level": "none"}},
                              "pipelines": {"profiles": {"receivers": list(receivers), "exporters": ["file"]}}}}
        path = directory / "collector.yaml"
        path.write_text(json.dumps(config))  # JSON is YAML
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(
                [binary, "--feature-gates=+service.profilesSupport", f"--config=file:{path}"],
                stdout=subprocess.DEVNULL, stderr=log)

    def wait_ready(self):
        def ready():
            assert self.process.poll() is None, self.log.read_text()[-2000:]
            return all(self.answers(port) for ports in self.ports.values() for port in ports.values())
        wait_for(ready, "the collector listens")

    @staticmethod
    def answers(port):
        with socket.socket() as s:
            return s.connect_ex(("127.0.0.1", port)) == 0

    def url(self, security, kind):
        return f"http{'' if security == 'plain' else 's'}://localhost:{self.ports[security][kind]}"

    def size(self):
        return self.out.stat().st_size if self.out.exists() else 0

    def requests(self, since, count):
        """`count` requests that it wrote past that size; nothing while there are fewer."""
        if not self.out.exists():
            return None
        with open(self.out, encoding="utf-8") as file:
            file.seek(since)
            lines = [line for line in file if line.endswith("\n")]
        return [json.loads(line) for line in lines] if len(lines) == count else None

    def stop(self):
        self.process.terminate()
        self.process.wait(timeout=PATIENCE)


@pytest.fixture(scope="session")
def collector(tmp_path_factory, certificates):
    if not shutil.which("go"):
        pytest.skip("no Go toolchain")
    done = subprocess.run([ROOT / "tests/system/build-collector"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    one = Collector(done.stdout.strip(), tmp_path_factory.mktemp("collector"), certificates)
    try:
        one.wait_ready()
        yield one
    finally:
        one.stop()

