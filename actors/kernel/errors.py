"""The errors that the emulated world raises on purpose, and the base of all others (`emu.base.errors`).

Modelled misfortune (a drop, a QP in error, a link down) is data, a programmer's mistake an assert with its
operands. Everything else is an `EmuError`: facts in fields, one line that says what is wrong, where, and what
to do, and the exit status of the `emu` command.
"""

from __future__ import annotations

from typing import ClassVar


class EmuError(Exception):
    """Base of every error the project raises on purpose. `str()` is what a user reads."""

    exit_status: ClassVar[int] = 4


class RuntimeFailure(EmuError):
    """A worker, a socket or the cluster failed; the model did not."""

    exit_status: ClassVar[int] = 4


class ProtocolError(RuntimeFailure):
    """A peer sent what the protocol between workers does not allow."""
