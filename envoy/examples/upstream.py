"""An upstream for the examples. It answers `ok`, except for these paths:

/slow                   the same after two seconds
/bytes/N                N bytes
/v1/chat/completions    JSON as of a language model that has used the request's `max_tokens`
"""

import json
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class Upstream(BaseHTTPRequestHandler):
    """Answers one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_GET(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        path = self.path.split("?")[0]
        kind, answer = "text/plain", b"ok\n"
        if path == "/slow":
            time.sleep(2)
        elif path.startswith("/bytes/"):
            answer = b"x" * int(path[len("/bytes/"):])
        elif path == "/v1/chat/completions":
            usage = {"total_tokens": json.loads(body)["max_tokens"]}
            kind, answer = "application/json", json.dumps({"usage": usage}).encode() + b"\n"
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    do_POST = do_GET

    def log_message(self, *_):
        """Keeps the terminal quiet."""


ThreadingHTTPServer(("127.0.0.1", 8080), Upstream).serve_forever()
