"""The JSON Schema of a scenario, and its reference as a page.

Both the JSON Schema and the reference tables are read off the models, so they cannot differ from what is
accepted. The descriptions are the texts under the fields. The JSON Schema accepts what the loader
accepts in shape; checks across fields, and on the fabric, are the loader's alone.
"""

import re
from collections.abc import Container, Iterable, Iterator, Mapping
from types import NoneType
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

from emu.base.docstrings import field_docstrings
from emu.base.json_schema import json_schema_of
from emu.base.records import MISSING, Limits, RecordField, parts_of
from emu.scenario.load import VARIANTS, variants_schema
from emu.scenario.plugins import OneOfOrPlugin
from emu.scenario.schema import Scenario
from emu.scenario.section import OneOf, Section
from emu.scenario.yaml.problems import ListOf, Shape, field_shape, fields
from emu.scenario.yaml.values import Reading


class Part(NamedTuple):
    """A section's place in the reference."""

    heading: str
    """Its path, like `topology (kind: ai_zone)`."""
    model: type[Section]
    required: tuple[str, ...]
    """Keys that must be given to choose this kind, over those that have no default."""


def parts(model: type[Section] = Scenario, path: str = "", required: tuple[str, ...] = ()) -> Iterator[Part]:
    """Every section that can be written, each kind by itself, in the order of the schema."""
    yield Part(path, model, required)
    for key, field in fields(model).items():
        yield from _parts_of(field_shape(field), f"{path}.{key}" if path else key, ())


def _parts_of(shape: Shape, path: str, required: tuple[str, ...]) -> Iterator[Part]:
    if isinstance(shape, ListOf):
        yield from _parts_of(shape.item, f"{path}[]", required)
    elif isinstance(shape, OneOf):
        for part in _kinds(shape, path, required):
            yield from parts(part.model, part.heading, part.required)
    elif isinstance(shape, type):
        yield from parts(shape, path, required)


def json_schema(model: type[Section] = Scenario) -> dict[str, Any]:
    """The JSON Schema of a scenario or another file, with every description and default."""
    schema = json_schema_of(model)
    definitions: dict[str, Any] = schema["$defs"]
    for part in parts(model):
        if part.required:
            definition = definitions[part.model.__name__]
            known = definition.get("required", [])
            definition["required"] = [*part.required, *(key for key in known if key not in part.required)]
    if model is Scenario:
        schema["properties"][VARIANTS] = variants_schema()
    return schema


MOST_NAMED: Final = 4
"""Kinds that a row of the reference names; more are `others`, as the table of kinds has them."""


class _Row(NamedTuple):
    """A key as a table shows it, and what hangs below it."""

    text: str
    shape: Shape


def markdown_tables(model: type[Section] = Scenario) -> str:
    """A table for every section: key, what it takes, default, meaning.

    Where a section comes in kinds, one table names the kinds and one has the keys of all, each once where
    it means the same. A section that is met again is named and not repeated; of another file than a scenario,
    one that a scenario has, too, is in the scenario's reference.
    """
    seen: dict[type[Section], str] = {}
    if model is not Scenario:
        for part in parts():
            if part.heading:
                path = part.heading.partition(" (")[0]
                seen[part.model] = f"[`{path}`]({page_of(path)}.md) of a scenario"
    return "\n".join(_section_blocks(Part("", model, ()), seen))


EXPLAINED: Final = {
    "topology": "topologies planes",
    "frontend": "storage",
    "routing": "routing",
    "switch": "switch data_path",
    "link": "data_path infiniband",
    "nic": "nic",
    "transport": "nic congestion_control planes",
    "host": "servers",
    "gpu": "servers",
    "overrides": "scenario",
    "ncclx": "ncclx collectives defaults",
    "control": "jobs",
    "run": "results captures timelines",
    "jobs": "jobs",
    "workload": "jobs training serving program storage",
    "faults": "faults recovery",
    "operator": "operator",
    "expect": "expectations metrics",
}
"""By the name of a page of keys without its beginning, the pages that explain them."""
_WORKLOAD: Final = "jobs[].workload"
_ALIKE: Final = re.compile(r"\b([Aa]s) `([^` ]+)([^`]*)`\.$", re.MULTILINE)
"""Where a section that is met again is named."""
_HEADING: Final = re.compile(r"### `([^`]+)`")


def page_of(path: str) -> str:
    """The page with the keys of the section at `path`, like `jobs[].workload.fuse`."""
    name = "workload" if path.startswith(_WORKLOAD) else re.split(r"\W", path)[0]
    return f"keys_{name}"


def markdown_pages() -> dict[str, str]:
    """Pages with the keys of a scenario by name: `keys_SECTION`, and the end of `scenario`, which lists them.

    Workloads have a page beside that of `jobs`.
    """
    seen: dict[type[Section], str] = {}
    first, *blocks = _section_blocks(Part("", Scenario, ()), seen)
    sections = (*(key for key, row in _rows(Part("", Scenario, ())).items() if row.shape), "workload")
    pages = {f"keys_{name}": [_keys_head(name)] for name in sections if f"keys_{name}" in map(_page, blocks)}
    for block in blocks:
        pages[_page(block)].append(_ALIKE.sub(_leads, block.removeprefix("#")))
    listed = re.sub(r"^\| `(\w+)`", lambda found: _linked(found, pages), first, flags=re.MULTILINE)
    return {"scenario": listed, **{name: "\n".join(blocks) for name, blocks in pages.items()}}


def _page(block: str) -> str:
    found = _HEADING.match(block)
    assert found is not None
    return page_of(found[1])


def _leads(found: re.Match[str]) -> str:
    return f"{found[1]} [`{found[2]}{found[3]}`]({page_of(found[2])}.md)."


def _linked(found: re.Match[str], pages: Container[str]) -> str:
    page = f"keys_{found[1]}"
    return f"| [`{found[1]}`]({page}.md)" if page in pages else found[0]


def _keys_head(name: str) -> str:
    explained = ", ".join(f"[{page}.md]({page}.md)" for page in EXPLAINED[name].split())
    named = _WORKLOAD if name == "workload" else name
    return (
        f"# Keys of `{named}`\n\n<!-- Written by `make golden`. -->\n\nSection `{named}` of a scenario"
        f" ([all sections](scenario.md#every-key)). Explained in {explained}.\n"
    )


def _section_blocks(part: Part, seen: dict[type[Section], str]) -> Iterator[str]:
    """A section's own block, and those of what hangs below it."""
    heading = f"### `{part.heading}`" if part.heading else "### Top level"
    if part.model in seen:
        yield f"{heading}\n\nAs {seen[part.model]}.\n"
        return
    seen[part.model] = f"`{part.heading}`"
    rows = _rows(part)
    yield "\n".join([heading, "", _doc(part.model), "", *_table(rows.values()), ""])
    yield from _blocks_below(part.heading, rows, seen)


def _blocks_below(path: str, rows: Mapping[str, _Row], seen: dict[type[Section], str]) -> Iterator[str]:
    for key, row in rows.items():
        below = f"{path}.{key}" if path else key
        shape = row.shape
        while isinstance(shape, ListOf):
            shape, below = shape.item, f"{below}[]"
        if isinstance(shape, OneOf):
            yield from _kinds_blocks(shape, below, seen)
        elif isinstance(shape, type):
            yield from _section_blocks(Part(below, shape, ()), seen)


def _kinds_blocks(table: OneOf, path: str, seen: dict[type[Section], str]) -> Iterator[str]:
    """The kinds of a section, and one table of all their keys: equal rows are printed once."""
    if all(model in seen for model in table.table.values()):
        named = ", ".join(f"`{kind}`" for kind in table.table)
        yield f"### `{path}`\n\n{named}: as {seen[next(iter(table.table.values()))]}.\n"
        return
    kinds = [(part, _rows(part, (table.key,) if table.tagged else ())) for part in _kinds(table, path, ())]
    own = ", or a class of your own ([plugins.md](plugins.md))" if isinstance(table, OneOfOrPlugin) else ""
    lines = [
        f"### `{path}`",
        "",
        f"{'One kind' if len(kinds) == 1 else f'One of {len(kinds)} kinds'}{own}.",
        "",
        "| | what it is | keys |",
        "|---|---|---|",
    ]
    holders: dict[tuple[str, _Row], list[Part]] = {}
    for part, rows in kinds:
        named = part.heading.removeprefix(f"{path} (").removesuffix(")")
        default = "" if part.required or not table.default else " (default)"
        keys = ", ".join(f"`{key}`" for key in rows) or "none"
        lines.append(f"| `{named}`{default} | {_doc(part.model)} | {keys} |")
        for key, row in rows.items():
            holders.setdefault((key, row), []).append(part)
    often = {key: max(len(parts) for (one, _), parts in holders.items() if one == key) for key, _ in holders}
    if holders:
        lines += ["", "| of | key | takes | default | meaning |", "|---|---|---|---|---|"]
    for (key, row), among in sorted(holders.items(), key=lambda item: len(item[1]) == 1):
        every = len(among) == len(kinds)
        most = len(among) > MOST_NAMED and len(among) == often[key]
        of = "all" if every else "others" if most else ", ".join(_values(part.heading) for part in among)
        lines.append(f"| {of} {row.text}")
    yield "\n".join([*lines, ""])
    for (key, row), among in holders.items():
        yield from _blocks_below(among[0].heading if len(among) == 1 else path, {key: row}, seen)


def _values(heading: str) -> str:
    """`incast` of `jobs[].workload (kind: incast)`."""
    return f"`{heading.rpartition(' (')[2].removesuffix(')').rpartition(': ')[2]}`"


def _kinds(table: OneOf, path: str, required: tuple[str, ...]) -> Iterator[Part]:
    """Every kind of a section."""
    for kind, model in table.table.items():
        keys = required if kind == table.default else (*required, table.key)
        yield Part(f"{path} ({table.heading(kind)})", model, keys)


def _rows(part: Part, without: Container[str] = ()) -> dict[str, _Row]:
    """The rows of a section by their keys."""
    meanings = _meanings(part.model)
    return {
        key: _Row(_row(key, field, meanings[key], required=key in part.required), field_shape(field))
        for key, field in fields(part.model).items()
        if key not in without
    }


def _table(rows: Iterable[_Row]) -> list[str]:
    return ["| key | takes | default | meaning |", "|---|---|---|---|", *(row.text for row in rows)]


def _doc(model: type[Section]) -> str:
    return " ".join((model.__doc__ or "").split())


def plain_rows(model: type[Section]) -> list[tuple[str, str, str, str]]:
    """The keys of a section for a terminal: key, what it takes, default, meaning."""
    meanings = _meanings(model)
    return [
        (key, _takes(field).replace("`", ""), _default(field).strip("`"), meanings[key])
        for key, field in fields(model).items()
    ]


def _row(key: str, field: RecordField, meaning: str, *, required: bool) -> str:
    default = "required" if required else _default(field)
    escaped = meaning.replace("|", "\\|")
    return f"| `{key}` | {_takes(field)} | {default} | {escaped} |"


def _meanings(model: type[Section]) -> dict[str, str]:
    """What the text under each field says, by the key that YAML writes."""
    texts = field_docstrings(model)
    return {field.alias: " ".join(texts.get(name, "").split()) for name, field in model.model_fields.items()}


def _default(field: RecordField) -> str:
    if field.is_required():
        return "required"
    if field.default is MISSING or isinstance(field.default, Section):
        return "see there" if isinstance(field.default, Section) else "see right"
    shape = field_shape(field)
    if isinstance(shape, Reading) and not (field.default is None and "auto" not in shape.noun):
        shown = shape.show(field.default)
        return f"`{shown}`" if shown else "none"
    if field.default in (None, (), ""):
        return "none"
    if isinstance(field.default, tuple):
        return f"`{list(field.default)}`"
    return f"`{str(field.default).lower() if isinstance(field.default, bool) else field.default}`"


def _takes(field: RecordField) -> str:
    shape = field_shape(field)
    if isinstance(shape, Reading):
        return shape.noun
    if isinstance(shape, ListOf):
        return f"list of {shape.item.noun}" if isinstance(shape.item, Reading) else "list"
    if shape is not None:
        return "section"
    annotation = field.annotation
    chosen = [one for one in get_args(annotation) if one is not NoneType]
    if get_origin(annotation) is not Literal and len(chosen) == 1 and get_origin(chosen[0]) is Literal:
        annotation = chosen[0]
    if get_origin(annotation) is Literal:
        return " or ".join(f"`{choice}`" for choice in get_args(annotation))
    if annotation is bool:
        return "`true` or `false`"
    inner = (annotation, *(plain for part in get_args(annotation) for plain in (part, *get_args(part))))
    return _number(field) if int in inner or float in inner else "text"


def _number(field: RecordField) -> str:
    """Its limits, or those of what is in it."""
    every = [
        field.annotation,
        *(part for one in get_args(field.annotation) for part in (one, *get_args(one))),
    ]
    limits = [one for one in field.metadata if isinstance(one, Limits)]
    limits += [parts_of(one)[1] for one in every]
    bounds = {
        name: value
        for one in limits
        for name, value in one._asdict().items()
        if value is not None and not name.endswith("length")
    }
    if "lt" in bounds:
        return "number from 0"
    if {"gt", "le"} <= set(bounds):
        return f"above {bounds['gt']}, up to {bounds['le']}"
    return f"{bounds['ge']} to {bounds['le']}" if {"ge", "le"} <= set(bounds) else "number"
