"""What packet level always knows, though a summary may be of flow level, which does not."""

from __future__ import annotations

from typing import TypeVar

Value = TypeVar("Value")


def known(value: Value | None) -> Value:
    """The value, which is there."""
    assert value is not None
    return value
