# SPDX-License-Identifier: Apache-2.0
"""An HTTP server that is in trouble: sink.py MODE PORT [FILE]

ok       200 and the bytes of FILE      404, 503   that status
hang     takes the request, says nothing   slow    one byte a second
drop     closes the connection          endless    a body that does not end
garbage  200 and bytes that are no ELF file
PORT 0 takes a free one. Prints the port, then a line per request.
"""

import http.server
import pathlib
import socket
import socketserver
import sys
import time

mode, port = sys.argv[1], int(sys.argv[2])
body = pathlib.Path(sys.argv[3]).read_bytes() if len(sys.argv) > 3 else b""


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, data):
        self.send_response(status)
        if status == 503:
            self.send_header("Retry-After", "5")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self):
        print(f"GET {self.path}", flush=True)
        if mode == "hang":
            time.sleep(3600)
        elif mode == "drop":
            self.connection.shutdown(socket.SHUT_RDWR)
            self.close_connection = True
        elif mode in ("slow", "endless"):
            self.send_response(200)
            self.send_header("Content-Length", str(5 << 30))
            if mode == "endless":
                self.headers_sent_without_length()
            self.end_headers()
            while True:
                self.wfile.write(b"x" if mode == "slow" else b"\x7fELF" + bytes(65532))
                time.sleep(1 if mode == "slow" else 0)
        elif mode in ("404", "503"):
            self.answer(int(mode), b"")
        else:
            self.answer(200, b"no ELF file\n" * 1000 if mode == "garbage" else body)

    def headers_sent_without_length(self):
        """Till the connection ends: the length is not told."""
        self._headers_buffer = [h for h in self._headers_buffer if not h.startswith(b"Content-Length")]
        self.close_connection = True

    def log_message(self, *args):
        pass


class Server(socketserver.ThreadingMixIn, http.server.HTTPServer):
    daemon_threads = True

    def handle_error(self, request, client_address):
        pass


server = Server(("127.0.0.1", port), Handler)
print(server.server_address[1], flush=True)
server.serve_forever()
