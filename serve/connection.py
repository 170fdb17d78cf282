"""An HTTP client of a booted engine, on a loopback port or on a unix socket in its private folder."""

from __future__ import annotations

import socket
from pathlib import Path

import httpx

_SOCKET = "unix:"


def socket_url(path: Path) -> str:
    """The base URL of an engine that listens on a unix socket: ``unix:/path``."""
    return f"{_SOCKET}{path}"


def client_of(base_url: str, timeout: httpx.Timeout | float) -> httpx.Client:
    """A client; nothing of the host's proxy settings reaches it."""
    if not base_url.startswith(_SOCKET):
        return httpx.Client(base_url=base_url, timeout=timeout, trust_env=False)
    transport = _Unix(Path(base_url.removeprefix(_SOCKET)))
    return httpx.Client(base_url="http://engine", timeout=timeout, transport=transport, trust_env=False)


def listens(base_url: str) -> bool:
    """Whether a unix socket takes connections yet; a loopback port is simply tried."""
    if not base_url.startswith(_SOCKET):
        return True
    with socket.socket(socket.AF_UNIX) as probe:
        return probe.connect_ex(base_url.removeprefix(_SOCKET)) == 0


class _Unix(httpx.HTTPTransport):
    """Connects to one socket; httpcore leaves an open file behind for every attempt on one that is not there."""

    def __init__(self, path: Path) -> None:
        super().__init__(uds=str(path), limits=httpx.Limits(max_connections=None))
        self._path = path

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        if not self._path.exists():
            raise httpx.ConnectError(f"nothing listens on {self._path}", request=request)
        return super().handle_request(request)


__all__ = ["client_of", "listens", "socket_url"]
