"""The table of algorithms, by the names of `actors.ncclx.collectives.ALGORITHMS`."""

from __future__ import annotations

from typing import Final

from actors.ncclx.algorithms.bruck import Bruck
from actors.ncclx.algorithms.chain import Chain
from actors.ncclx.algorithms.direct import Direct
from actors.ncclx.algorithms.hierarchical import Hierarchical, Pxn
from actors.ncclx.algorithms.recursive import HalvingDoubling, RecursiveDoubling
from actors.ncclx.algorithms.trees import DoubleBinaryTree
from actors.ncclx.graph import Algorithm

LIBRARY: Final[dict[str, Algorithm]] = {
    "ring": Chain(),
    "direct": Direct(),
    "recursive_doubling": RecursiveDoubling(),
    "halving_doubling": HalvingDoubling(),
    "bruck": Bruck(),
    "double_binary_tree": DoubleBinaryTree(),
    "hierarchical": Hierarchical(),
    "pxn": Pxn(),
}
"""By name. The three collectives of `actors.ncclx.algorithms.ring` are not graphs and not here."""
