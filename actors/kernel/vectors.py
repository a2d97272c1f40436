"""Tables in which the packet path keeps its records.

Compiled, `vec` is a native array: integers unboxed, records without a type check. Interpreted, the same name
is a list, whose subscripts the interpreter has its own instructions for. Both have value semantics as used
here: a table is replaced by what `append` and `pop` return, and the old name is not used again.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from actors.compiled.finder import is_compiled

__all__ = ["append", "pop", "vec"]

if TYPE_CHECKING or is_compiled():
    from librt.vecs import append, pop, vec
else:
    Item = TypeVar("Item")
    vec = list

    def append(table: list[Item], item: Item) -> list[Item]:
        """The table with an item more at its end."""
        table.append(item)
        return table

    def pop(table: list[Item], at: int = -1) -> tuple[list[Item], Item]:
        """The table without its last item (or the one at `at`), and that item."""
        return table, table.pop(at)
