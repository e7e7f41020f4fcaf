#!/usr/bin/env python3
"""A server for tests of downloads: serves the files of a folder, and cuts, lies and stalls on request.

Usage: fake_hub.py serve ROOT          prints its port, then serves ROOT/files until stdin ends
       fake_hub.py wheel OUT MEMBER CONTENT stored|deflated    writes a ZIP archive with one member

ROOT/behavior.json says what to do for which path, {PATH: {"kind": ..., "times": N, ...}}: a behavior
is for the first `times` requests of its path (without "times", for all). Each request is a line of
ROOT/log: method, address, Host, Authorization, Range, If-Range.
"""
import hashlib
import json
import random
import sys
import threading
import time
import zipfile
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import unquote, urlsplit

RANDOM = random.Random(7)


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    lock = threading.Lock()
    counts = {}

    def log_message(self, *_):
        pass

    def behavior(self, path):
        text = (self.server.root / "behavior.json").read_text() or "{}"
        found = json.loads(text).get(path)
        if not found:
            return {"kind": "plain"}
        with self.lock:
            key = (path, json.dumps(found))
            self.counts[key] = self.counts.get(key, 0) + 1
            return found if self.counts[key] <= found.get("times", 1 << 30) else {"kind": "plain"}

    def note(self):
        header = self.headers.get
        line = [self.command, self.path, header("Host"), header("Authorization", "-"), header("Range", "-"),
                header("If-Range", "-")]
        with self.lock, open(self.server.root / "log", "a", encoding="utf-8") as log:
            log.write(" ".join(line) + "\n")

    def do_GET(self):
        self.note()
        path = unquote(urlsplit(self.path).path)
        how = self.behavior(path)
        kind = how["kind"]
        if kind == "status":
            return self.answer(how["status"], how.get("headers", {}), b"nothing to see " * 10)
        if kind == "redirect":
            return self.answer(how.get("status", 302), {"Location": how["to"]}, b"moved")
        if kind == "headers":
            return self.answer(200, {f"X-{i}": "x" * 1000 for i in range(how["count"])}, b"{}")
        file = self.server.root / "files" / path.lstrip("/")
        if not file.is_file():
            return self.answer(404, {}, b"not found")
        return self.content(file.read_bytes(), how, file.name)

    def answer(self, status, headers, body):
        self.send_response(status)
        for name, value in {"Content-Length": len(body), **headers}.items():
            self.send_header(name, str(value))
        self.end_headers()
        self.wfile.write(body)

    def content(self, content, how, name):
        kind = how["kind"]
        if kind == "wrong":  # the same length, other bytes
            content = bytes([content[0] ^ 1]) + content[1:]
        if kind == "longer":
            content += b"more"
        if kind == "shorter":
            content = content[:-how["by"]]
        etag = '"' + hashlib.sha256(content).hexdigest()[:16] + how.get("etag", "") + '"'
        start = self.start(len(content), etag) if kind != "ignore_range" and not how.get("ignore_range") else 0
        if start >= len(content) > 0:
            return self.answer(416, {"Content-Range": f"bytes */{len(content)}"}, b"")
        total = len(content)
        if kind == "other_range" and start:
            start -= 1
        body = content[start:]
        self.send_response(206 if start else 200)
        if start:
            self.send_header("Content-Range", f"bytes {start}-{total - 1}/{total}")
        self.send_header("ETag", etag)
        self.send_header("Content-Type", "application/vnd.pypi.simple.v1+json" if name == "index.json" else
                         "text/html" if name == "index.html" else "application/octet-stream")
        length = len(body) + {"claims_more": 1000, "claims_less": -1000}.get(kind, 0)
        if kind == "no_length":
            self.send_header("Connection", "close")
            self.close_connection = True
        else:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.send(body, how)

    def start(self, total, etag):
        asked = self.headers.get("Range", "")
        if not asked.startswith("bytes=") or self.headers.get("If-Range", etag) != etag:
            return 0
        return min(int(asked[6:].split("-")[0]), total)

    def send(self, body, how):
        kind = how["kind"]
        limit = {"cut": how.get("at", 0), "stall": how.get("at", 0), "claims_less": len(body) - 1000,
                 "random_cut": RANDOM.randrange(max(1, len(body)))}.get(kind, len(body))
        try:
            if kind == "slow":
                for at in range(0, len(body), 1 << 14):
                    self.wfile.write(body[at:at + (1 << 14)])
                    time.sleep(how["seconds"])
                return
            self.wfile.write(body[:limit])
            self.wfile.flush()
            if kind == "stall":
                time.sleep(how["seconds"])
        except OSError:
            pass
        if kind in ("cut", "random_cut", "stall", "claims_more"):
            self.close_connection = True


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):
        pass  # clients that go away are part of the tests


def serve(root):
    server = Server(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    server.root = Path(root)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print(server.server_address[1], flush=True)
    sys.stdin.read()  # until the test goes


def write_wheel(out, member, content, method):
    kinds = {"stored": zipfile.ZIP_STORED, "deflated": zipfile.ZIP_DEFLATED}
    with zipfile.ZipFile(out, "w", kinds[method]) as archive:
        archive.writestr("other/before.txt", "something else")
        archive.writestr(member, Path(content).read_bytes())
        archive.writestr("x.dist-info/RECORD", "")
        archive.comment = b"a comment"


if __name__ == "__main__":
    {"serve": serve, "wheel": write_wheel}[sys.argv[1]](*sys.argv[2:])
