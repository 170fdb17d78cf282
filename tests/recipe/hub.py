"""A hub on this machine: real HTTP, real ranges, and every way to misbehave that a test asks for."""

from __future__ import annotations

import gzip
import re
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

REVISION = "0123456789abcdef0123456789abcdef01234567"
NAME = "lna/donor"


@dataclass
class Hub:
    """Serves one folder as one repository at one commit."""

    folder: Path
    faults: deque[str] = field(default_factory=deque)
    """What the next requests for ranges meet, in order: stall, cut, busy, whole, other or gone.

    And of bodies that are not their range: encoded, short (in chunks that end properly), longer, shorter; ``identity``
    and ``chunks`` are honest."""
    only_from: int = 0
    """Faults meet requests that begin at this byte or later: headers come in peace."""
    tag: str = '"one"'
    changed_at: str = ""
    commit: str = REVISION
    misleads: dict[str, str] = field(default_factory=dict)
    """Headers of an answer to everything, with a body of four bytes: 302 where one is ``Location``, else 200."""
    asked: list[tuple[str, str, int]] = field(default_factory=list)
    """File, range and bytes sent of each request."""
    url: str = ""

    def sent(self, suffix: str = ".safetensors") -> int:
        """Bytes that went out for files of this kind."""
        return sum(count for file, _, count in self.asked if file.endswith(suffix))


@contextmanager
def serving(folder: Path) -> Iterator[Hub]:
    """A hub that stands while the block runs."""
    hub = Hub(folder)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            _answer(self, hub)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    hub.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield hub
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def _answer(handler: BaseHTTPRequestHandler, hub: Hub) -> None:
    if hub.misleads:
        hub.asked.append((handler.path, "", 4))
        handler.send_response(302 if "Location" in hub.misleads else 200)
        for name, value in hub.misleads.items():
            handler.send_header(name, value)
        handler.send_header("Content-Length", "4")
        handler.end_headers()
        handler.wfile.write(b"junk")
        return
    match = re.fullmatch(rf"/{NAME}/resolve/{REVISION}/([\w.\-]+)", handler.path)
    file = hub.folder / match[1] if match else hub.folder / "nothing"
    if not file.is_file():
        hub.asked.append((file.name, "", 0))
        _status(handler, 404)
        return
    content = file.read_bytes()
    asked = re.fullmatch(r"bytes=(\d+)-(\d+)", handler.headers.get("Range", ""))
    start, stop = (int(asked[1]), min(int(asked[2]) + 1, len(content))) if asked else (0, len(content))
    fault = hub.faults.popleft() if asked and hub.faults and start >= hub.only_from else ""
    if fault in ("busy", "gone"):
        hub.asked.append((file.name, f"{start}-{stop}", 0))
        _status(handler, 503 if fault == "busy" else 403)
        return
    if fault == "whole":
        asked, start, stop = None, 0, len(content)
    if fault == "other":
        start += 1
    handler.send_response(206 if asked else 200)
    if hub.tag:
        handler.send_header("ETag", hub.tag)
    if hub.changed_at:
        handler.send_header("Last-Modified", hub.changed_at)
    handler.send_header("X-Repo-Commit", hub.commit)
    body = _body(handler, content[start:stop], fault)
    if asked:
        handler.send_header("Content-Range", f"bytes {start}-{stop - 1}/{len(content)}")
    handler.end_headers()
    sent = len(body) // 2 if fault in ("stall", "cut") else len(body)
    hub.asked.append((file.name, f"{start}-{stop}", sent))
    if fault in ("short", "chunks"):
        body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
    if fault in ("stall", "cut"):
        body = body[:sent]
    try:
        handler.wfile.write(body)
        handler.wfile.flush()
        if fault == "stall":
            handler.rfile.read(1)  # until the client gives up
    except OSError:
        pass
    if fault in ("stall", "cut", "whole"):
        handler.close_connection = True


def _body(handler: BaseHTTPRequestHandler, content: bytes, fault: str) -> bytes:
    """What is sent for these bytes, whose form and length the headers tell."""
    if fault == "encoded":
        content = gzip.compress(content)
    if fault in ("encoded", "identity"):
        handler.send_header("Content-Encoding", "gzip" if fault == "encoded" else "identity")
    if fault in ("short", "shorter"):
        content = content[: len(content) // 2]
    if fault == "longer":
        content += b"more"
    if fault in ("short", "chunks"):
        handler.send_header("Transfer-Encoding", "chunked")
    else:
        handler.send_header("Content-Length", str(len(content)))
    return content


def _status(handler: BaseHTTPRequestHandler, code: int) -> None:
    handler.send_response(code)
    handler.send_header("Content-Length", "0")
    handler.end_headers()
