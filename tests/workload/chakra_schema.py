"""Chakra's published schema (`et_def.proto`) for Google's own protobuf, and files as Chakra's tools write
them.

Only what nodes other than those of storage consist of.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from tests.workload.chakra_files import varint

_descriptors: Any = importlib.import_module("google.protobuf.descriptor_pb2")
_pools: Any = importlib.import_module("google.protobuf.descriptor_pool")
_factory: Any = importlib.import_module("google.protobuf.message_factory")

PACKAGE: Final = "ChakraProtoMsg"
KINDS: Final = (
    "double",
    "float",
    "int32",
    "int64",
    "uint32",
    "uint64",
    "sint32",
    "sint64",
    "fixed32",
    "fixed64",
    "sfixed32",
    "sfixed64",
    "bool",
    "string",
    "bytes",
)
"""Of attributes' values: a value and a list of each, numbered in turn from 3."""
NODE_TYPES: Final = (
    "INVALID_NODE",
    "METADATA_NODE",
    "MEM_LOAD_NODE",
    "MEM_STORE_NODE",
    "COMP_NODE",
    "COMM_SEND_NODE",
    "COMM_RECV_NODE",
    "COMM_COLL_NODE",
    "STORAGE_NODE",
    "BATCH_NODE",
    "CHECKPOINT_NODE",
)

Field = tuple[str, int, str, bool]
"""Name, number, type, and whether it is repeated."""
MESSAGES: Final[dict[str, tuple[Field, ...]]] = {
    **{f"{kind.capitalize()}List": (("values", 1, kind, True),) for kind in KINDS},
    "AttributeProto": (
        ("name", 1, "string", False),
        ("doc_string", 2, "string", False),
        *((f"{kind}_val", 3 + 2 * at, kind, False) for at, kind in enumerate(KINDS)),
        *((f"{kind}_list", 4 + 2 * at, f"{kind.capitalize()}List", False) for at, kind in enumerate(KINDS)),
    ),
    "GlobalMetadata": (("version", 1, "string", False), ("attr", 2, "AttributeProto", True)),
    "IOInfo": (("values", 1, "string", False), ("shapes", 2, "string", False), ("types", 3, "string", False)),
    "Node": (
        ("id", 1, "uint64", False),
        ("name", 2, "string", False),
        ("type", 3, "NodeType", False),
        ("ctrl_deps", 4, "uint64", True),
        ("data_deps", 5, "uint64", True),
        ("start_time_micros", 6, "uint64", False),
        ("duration_micros", 7, "uint64", False),
        ("inputs", 8, "IOInfo", False),
        ("outputs", 9, "IOInfo", False),
        ("attr", 10, "AttributeProto", True),
    ),
}


@cache
def _pool() -> Any:
    file = _descriptors.FileDescriptorProto(name="et_def.proto", package=PACKAGE, syntax="proto3")
    types = file.enum_type.add(name="NodeType")
    for number, name in enumerate(NODE_TYPES):
        types.value.add(name=name, number=number)
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        if name == "AttributeProto":
            message.oneof_decl.add(name="value")
        for field, number, kind, repeated in fields:
            added = message.field.add(name=field, number=number, label=3 if repeated else 1)
            if kind in MESSAGES or kind == "NodeType":
                added.type = 14 if kind == "NodeType" else 11
                added.type_name = f".{PACKAGE}.{kind}"
            else:
                added.type = getattr(added, f"TYPE_{kind.upper()}")
            if field.endswith(("_val", "_list")):
                added.oneof_index = 0
    pool = _pools.DescriptorPool()
    pool.Add(file)
    return pool


def message(of: str, /, **fields: Any) -> Any:
    """A message of the schema, as Google's library makes it."""
    return _factory.GetMessageClass(_pool().FindMessageTypeByName(f"{PACKAGE}.{of}"))(**fields)


def attribute(name: str, **value: Any) -> Any:
    """An attribute."""
    return message("AttributeProto", name=name, **value)


def written(messages: Sequence[Any]) -> bytes:
    """A file: each message after its length (`encodeMessage` of Chakra's protolib)."""
    whole = [one.SerializeToString() for one in messages]
    return b"".join(varint(len(one)) + one for one in whole)


def nodes_of(data: bytes) -> list[Any]:
    """The nodes of a file, read by Google's library."""
    found, at = [], 0
    while at < len(data):
        size, shift = 0, 0
        while True:
            byte = data[at]
            at += 1
            size |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
        found.append(data[at : at + size])
        at += size
    nodes = [message("Node") for _ in found[1:]]
    for node, content in zip(nodes, found[1:], strict=True):
        node.ParseFromString(content)
    return nodes
