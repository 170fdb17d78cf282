"""An HTTP client of a booted engine, on a loopback port or on a unix socket in its private folder."""

from __future__ import annotations

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
    transport = httpx.HTTPTransport(uds=base_url.removeprefix(_SOCKET), limits=httpx.Limits(max_connections=None))
    return httpx.Client(base_url="http://engine", timeout=timeout, transport=transport, trust_env=False)


__all__ = ["client_of", "socket_url"]
