"""An HTTP client of a booted engine, on a loopback port or on a unix socket in its private folder."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

import httpcore
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
    return not _refusal(base_url.removeprefix(_SOCKET))


class _Unix(httpx.HTTPTransport):
    """Connects to one socket, and leaves no open file behind where nothing listens."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._pool = httpcore.ConnectionPool(max_connections=None, uds=str(path), network_backend=_Probing())


class _Probing(httpcore.SyncBackend):
    """Tries a unix socket first: the library's own attempt leaves its file open where it fails."""

    def connect_unix_socket(
        self, path: str, timeout: float | None = None, socket_options: Any = None
    ) -> httpcore.NetworkStream:
        if error := _refusal(path):
            raise httpcore.ConnectError(f"nothing listens on {path}: {error}")
        return super().connect_unix_socket(path, timeout, socket_options)


def _refusal(path: str) -> str:
    """Why a socket takes no connection; empty where it does."""
    with socket.socket(socket.AF_UNIX) as probe:
        code = probe.connect_ex(path)
    return os.strerror(code) if code else ""


__all__ = ["client_of", "listens", "socket_url"]
