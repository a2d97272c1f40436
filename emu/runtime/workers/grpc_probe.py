"""Does a gRPC server answer at an address?

Ray's own clients try for minutes. A server opens HTTP/2 with a SETTINGS frame as soon as it hears the
client's preface (RFC 9113, 3.4). A process that is stopped, or about to end, may still take a connection; it
answers nothing. Where the cluster uses TLS, that a connection is taken has to do.
"""

from __future__ import annotations

import os
import socket
from typing import Final

HEADER_BYTES: Final = 9
SETTINGS: Final = 4
PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, SETTINGS, 0, 0, 0, 0, 0])
"""What a client says first, with empty settings."""


def speaks_grpc(host: str, port: int, timeout_s: float) -> bool:
    """Whether what listens at an address is a gRPC server. Raises OSError if nothing does."""
    with socket.create_connection((host, port), timeout=timeout_s) as connection:
        return "RAY_USE_TLS" in os.environ or _opens_http2(connection)


def _opens_http2(connection: socket.socket) -> bool:
    connection.sendall(PREFACE)
    header = b""
    while len(header) < HEADER_BYTES:
        more = connection.recv(HEADER_BYTES - len(header))
        if not more:
            return False
        header += more
    return header[3] == SETTINGS
