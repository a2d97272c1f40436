"""Reader of requests to a model that is served: traces of Azure, Mooncake and vidur, and tables of one's own.

    Azure     CSV: TIMESTAMP (a date and a time of day in UTC), ContextTokens, GeneratedTokens
    vidur     CSV: arrived_at (seconds), num_prefill_tokens, num_decode_tokens
    own       CSV: at (with unit), prompt, output, and optionally cached
    Mooncake  a line of JSON each: timestamp (ms), input_length, output_length, hash_ids

Azure's earliest TIMESTAMP is 0; the others' times are as they stand. Mooncake's `hash_ids` name the blocks of
512 tokens of a prompt, each by what it and all before it hold. Of a prompt the leading blocks that an earlier
request had are cached: they are not computed again, but for one token at least. That is a memory which holds
everything and which every instance reaches; what it takes to fetch is not counted.

Sources: Azure/AzurePublicDataset, `AzureLLMInferenceDataset2023.md`; kvcache-ai/Mooncake,
`FAST25-release/traces` (FAST'25, section 4); microsoft/vidur, `data/processed_traces`.
"""

import json
import re
from decimal import Decimal, InvalidOperation
from typing import Any, Final

from emu.base.errors import FormatError
from emu.scenario.readers.foreign import LONGEST_SHOWN, limited, whole_number
from emu.scenario.readers.tables import Row, as_many, csv_rows

MOST_TOKENS: Final = 2**20
MAX_REQUESTS: Final = 2**16
BLOCK_TOKENS: Final = 512
MOST_SECONDS: Final = 10**9
COLUMNS: Final = {
    "TIMESTAMP": "at",
    "ContextTokens": "prompt",
    "GeneratedTokens": "output",
    "arrived_at": "at",
    "num_prefill_tokens": "prompt",
    "num_decode_tokens": "output",
    "at": "at",
    "prompt": "prompt",
    "output": "output",
    "cached": "cached",
}
"""What a column of requests is to the workload."""
_ACCEPTED: Final = (
    "TIMESTAMP,ContextTokens,GeneratedTokens; arrived_at,num_prefill_tokens,num_decode_tokens; or "
    "at,prompt,output and perhaps cached"
)
_KEYS: Final = ("timestamp", "input_length", "output_length", "hash_ids")
_TIMESTAMP: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[ T]([01]\d|2[0-3]):([0-5]\d):([0-5]\d)(?:\.(\d{1,12}))?(?:Z|\+00:00)?", re.ASCII
)


class RequestTableError(FormatError):
    """A table of requests that cannot be read."""


def is_requests(text: str) -> bool:
    """Whether a text is such a table, by its first line."""
    first = text.lstrip().partition("\n")[0][:4096]
    if first.startswith("{"):
        return '"input_length"' in first and '"output_length"' in first
    return {COLUMNS.get(one.strip(), "") for one in first.split(",")} >= {"at", "prompt", "output"}


def read_requests(text: str) -> list[Row]:
    """The requests of a table: at, prompt, output, cached. Raises `RequestTableError`."""
    return _read_lines(text) if text.lstrip().startswith("{") else _read_table(text)


def _read_table(text: str) -> list[Row]:
    columns: list[str] = []
    rows: list[Row] = []
    moments_ps: list[int] = []
    for line, cells in csv_rows(text, RequestTableError):
        if not columns:
            columns = cells
            named = sorted(COLUMNS.get(one, "") for one in columns)
            if [one for one in named if one != "cached"] != ["at", "output", "prompt"]:
                raise RequestTableError(line, f"columns {','.join(columns)[:60]}", _ACCEPTED)
            continue
        as_many(RequestTableError, line, cells, columns)
        limited(RequestTableError, line, len(rows) + 1, MAX_REQUESTS, "requests")
        cell = {COLUMNS[column]: value for column, value in zip(columns, cells, strict=True)}
        for key in ("prompt", "output"):
            whole_number(RequestTableError, line, cell[key], 1, MOST_TOKENS, f"{key} tokens,")
        if "TIMESTAMP" in columns:
            moments_ps.append(_moment_ps(cell["at"], line))
        elif "arrived_at" in columns:
            cell["at"] = f"{_seconds_ps(cell['at'], line)}ps"
        rows.append(Row(line, cell))
    if not rows:
        last = max(len(text.splitlines()), 1)
        raise RequestTableError(last, "no request in the table", "a line of columns, then requests")
    if not moments_ps:
        return rows
    first_ps = min(moments_ps)
    return [
        row._replace(cells={**row.cells, "at": f"{at_ps - first_ps}ps"})
        for row, at_ps in zip(rows, moments_ps, strict=True)
    ]


def _read_lines(text: str) -> list[Row]:
    """Mooncake's: a line of JSON each."""
    rows: list[Row] = []
    known: set[int] = set()
    for line, written in enumerate(text.splitlines(), 1):
        if not written.strip():
            continue
        limited(RequestTableError, line, len(rows) + 1, MAX_REQUESTS, "requests")
        asked = _object(line, written)
        prompt, output = (_whole(line, asked, key, 1, MOST_TOKENS) for key in _KEYS[1:3])
        at_ms = _whole(line, asked, "timestamp", 0, MOST_SECONDS * 1000)
        blocks = asked.get("hash_ids", [])
        if not isinstance(blocks, list) or not all(type(one) is int for one in blocks):
            raise RequestTableError(line, "hash_ids is no list of numbers", "a number for each block")
        seen = next((at for at, one in enumerate(blocks) if one not in known), len(blocks))
        known.update(blocks)
        cells = {"at": f"{at_ms}ms", "prompt": str(prompt), "output": str(output)}
        cached = min(seen * BLOCK_TOKENS, prompt - 1)
        rows.append(Row(line, cells | ({"cached": str(cached)} if cached else {})))
    return rows


def _object(line: int, written: str) -> dict[str, Any]:
    accepted = f"an object with {', '.join(_KEYS)}"
    try:
        asked = json.loads(written)
    except (ValueError, RecursionError) as error:
        raise RequestTableError(line, f"no JSON: {str(error)[:80]}", accepted) from error
    if not isinstance(asked, dict):
        raise RequestTableError(line, "is no object of JSON", accepted)
    for key in asked:
        if key not in _KEYS:
            raise RequestTableError(line, f"unknown key {key[:LONGEST_SHOWN]!r}", accepted)
    return asked


def _whole(line: int, asked: dict[str, Any], key: str, least: int, most: int) -> int:
    value = asked.get(key)
    if type(value) is not int or not least <= value <= most:
        shown = str(value)[:LONGEST_SHOWN]
        raise RequestTableError(line, f"{key} is {shown}", f"a whole number from {least} to {most}")
    return value


def _seconds_ps(written: str, line: int) -> int:
    """A time in seconds, with decimals, in ps."""
    try:
        seconds = Decimal(written)
    except InvalidOperation:
        seconds = Decimal(-1)
    if not seconds.is_finite() or not 0 <= seconds <= MOST_SECONDS:
        reason = f"{written[:LONGEST_SHOWN]!r} is no time of arrival"
        raise RequestTableError(line, reason, f"seconds from 0 to {MOST_SECONDS}")
    return int(seconds * 10**12)


def _moment_ps(written: str, line: int) -> int:
    """Since the first day of the calendar."""
    found = _TIMESTAMP.fullmatch(written)
    accepted = "a date and a time of day in UTC, as 2023-11-16 18:15:46.6805900"
    if found is None:
        raise RequestTableError(line, f"{written[:40]!r} is no TIMESTAMP", accepted)
    year, month, day, hours, minutes, seconds = map(int, found.groups()[:6])
    lengths = (31, 28 + _is_leap(year), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)
    if year < 1 or not 1 <= month <= 12 or not 1 <= day <= lengths[month - 1]:
        raise RequestTableError(line, f"{written[:40]!r} is no day", accepted)
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400 + sum(lengths[: month - 1]) + day
    whole = ((days * 24 + hours) * 60 + minutes) * 60 + seconds
    return whole * 10**12 + int((found[7] or "").ljust(12, "0"))


def _is_leap(year: int) -> bool:
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)
