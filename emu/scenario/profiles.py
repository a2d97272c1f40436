"""Profiles: all constants of a GPU, of the library's costs, and of a switch chip together.

`gpu.model` names a GPU, `costs` whether calls of the library cost anything beside their bytes. Either is a
word for keys of other sections: where the scenario does not write such a key, its value is put there before
anything is checked, so the effective scenario has every one of them. A key that is written stays as it is; a
GPU whose constants then belong to two generations is warned of (`generation_warnings`).

A GPU more is a row of `GPUS`; a cost more is a row of `COSTS`.

Sources of `GPUS`: NVLink, tuner and NVLS are NCCL 2.30.7's (`src/graph/topo.h`: 20.0 GB/s a link of an A100,
20.6 of Hopper GPUs, 40.1 of Blackwell; `src/graph/tuning.cc`); SMs and HBM are those of NVIDIA's data sheets,
HBM at nine tenths of what they print, as an H100's 3 of 3.35 TB/s. An H800 has 8 of an H100's 18 links.
Thread blocks: docs/ncclx.md has an H100's; an A100's is that by the rates of a channel with LL128 in the
tuner's table, 20 / 36.7, and a B200's 70 GB/s is the tuner's rate of a tree's channel. Flush: a READ of the
NIC to itself before data is used, which the library leaves out from Hopper on (`src/transport/net.cc`).

Sources of `COSTS` stand beside them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from emu.base.units import format_rate, format_time, parse_rate
from emu.scenario.section import yaml_name

Values = Mapping[str, object]
"""Values by key of the scenario, as YAML holds them."""


class GpuProfile(NamedTuple):
    """The constants of a GPU."""

    tuner: str
    """Generation whose constants NCCL's table has."""
    nvlink: str
    nvls_efficiency: float
    channel_rate: str
    """What a thread block sends over NVLink."""
    nic_copy_rate: str
    """What it copies into and out of buffers of NICs."""
    copy_rate: str
    sms: int
    flush: str = "0s"
    """What the library's flush takes before data of a NIC is used."""

    def values(self) -> Values:
        """By key."""
        return {
            "gpu.copy_rate": self.copy_rate,
            "gpu.channel_rate": self.channel_rate,
            "gpu.sms": self.sms,
            "host.nvlink.rate": self.nvlink,
            "host.nvlink.nvls_efficiency": self.nvls_efficiency,
            "ncclx.tuner.gpu": self.tuner,
        }


GPUS: Final[Mapping[str, GpuProfile]] = {
    "a100": GpuProfile("ampere", "1920Gbps", 0.85, "13.1GB/s", "17.4GB/s", "14.7Tbps", 108, flush="1us"),
    "h100": GpuProfile("hopper", "2966.4Gbps", 0.85, "24GB/s", "32GB/s", "24Tbps", 132),
    "h200": GpuProfile("hopper", "2966.4Gbps", 0.85, "24GB/s", "32GB/s", "34.6Tbps", 132),
    "h20": GpuProfile("hopper", "2966.4Gbps", 0.85, "24GB/s", "32GB/s", "28.8Tbps", 78),
    "h800": GpuProfile("hopper", "1318.4Gbps", 0.85, "24GB/s", "32GB/s", "24Tbps", 132),
    "b200": GpuProfile("blackwell", "5774.4Gbps", 0.74, "70GB/s", "93.3GB/s", "57.6Tbps", 148),
}
USUAL: Final = "h100"
"""Whose constants the defaults of the sections are."""


class Cost(NamedTuple):
    """A mechanism that costs time beside the bytes of a call."""

    key: str
    usual: str
    """With `costs: default`; "" for a constant of the GPU."""
    kind: str
    """`published`, `choice` where sources leave a range, or `by construction` of the library's own table."""
    source: str


COSTS: Final[tuple[Cost, ...]] = (
    Cost(
        "ncclx.launch",
        "5us",
        "choice",
        "between 0.9 us of a launch that overlaps and 6.7 us of one that is waited for (NVIDIA, Getting"
        " Started with CUDA Graphs)",
    ),
    Cost(
        "gpu.copy_latency",
        "2.6us",
        "by construction",
        "NCCL's 3.4 us a hop over NVLink with Simple, less the rest of the hop",
    ),
    Cost(
        "gpu.lines_latency",
        "1us",
        "published",
        "about 2 us a hop with LL128, 1 us with LL (Hu et al., arXiv 2507.04786, table 1)",
    ),
    Cost(
        "gpu.fence",
        "1us",
        "choice",
        "a fence of the system waits for the acknowledgement of all writes over PCIe: a round trip",
    ),
    Cost(
        "gpu.flush", "", "choice", "a READ of the NIC to itself: two round trips over PCIe; 0 from Hopper on"
    ),
    Cost(
        "gpu.nic_copy_rate",
        "",
        "published",
        "one channel of NCCL 2.30 on one H100 (docs/ncclx.md): 22.3 GB/s x 3 copies for 2 sends between two"
        " ranks, 26.4 x 7 / 6 among four",
    ),
    Cost(
        "host.tail_delay",
        "500ns",
        "published",
        "half of a round trip over PCIe, about 1 us (Neugebauer et al., SIGCOMM'18: 500 ns to 1 us)",
    ),
    Cost(
        "host.head_delay",
        "1us",
        "published",
        "a GPU's threads that poll host memory: a round trip over PCIe (the same)",
    ),
    Cost(
        "host.proxy_cost",
        "100ns",
        "published",
        "a post 175 ns, a polled completion 62 ns (Zambre et al., ICPP'19)",
    ),
    Cost("host.proxy_poll", "62ns", "published", "one look into a completion queue (the same)"),
    Cost(
        "host.proxy_batched",
        "50ns",
        "published",
        "a post without barriers and doorbell 28 ns, a completion 62 ns (the same)",
    ),
)
"""In the order of the path of a slice."""
LIBRARY: Final[Values] = {"ncclx.version": "2.30.7", "host.nvlink.nvls_latency": "20us"}
"""What `costs: default` sets besides: the rules of the library that it is the cost of, and the 25 us that its
table has for all of a small call of NVLS, less the launch."""
ON_CHIP: Final[Values] = {"host.link_delay": "75ns"}
"""And the link between a GPU and its host, which over NVLink stands for a GPU's threads seeing a flag: half
of an access to an H100's second cache, 150 ns."""
NONE, DEFAULT = "none", "default"


def costs_of(word: str, gpu: str) -> Values:
    """The costs that a word stands for on a GPU."""
    if word == NONE:
        return {one.key: "auto" if one.key == "gpu.nic_copy_rate" else "0s" for one in COSTS}
    profile = GPUS.get(gpu, GPUS[USUAL])
    own = {"gpu.flush": profile.flush, "gpu.nic_copy_rate": profile.nic_copy_rate}
    return {**{one.key: one.usual or own[one.key] for one in COSTS}, **LIBRARY, **ON_CHIP}


def costs_line(scenario: Any) -> str:
    """Which costs a scenario has at which value, in a line."""
    shown = []
    for one in COSTS:
        section, _, key = one.key.partition(".")
        part = getattr(scenario, section)
        names = [name for name in type(part).model_fields if yaml_name(name) == key]
        value = getattr(part, names[0])
        if value is None:
            text = "as proxy_cost" if key == "proxy_batched" else "no limit"
        else:
            text = format_rate(value) if names[0].endswith("_bps") else format_time(value)
        shown.append(f"{one.key} {text}")
    if not scenario.host.gpudirect:
        shown.append("host.gpudirect false")
    return f"costs ({scenario.costs}): {', '.join(shown)}"


def costs_table() -> str:
    """The costs as docs/costs.md has them."""
    rows = ["| key | `default` | kind | source |", "|---|---|---|---|"]
    for one in COSTS:
        value = one.usual or "that of the GPU"
        rows.append(f"| `{one.key}` | {value} | {one.kind} | {one.source} |")
    return "\n".join(rows)


def gpus_table() -> str:
    """The GPUs as docs/costs.md has them."""
    rows = [
        "| `gpu.model` | tuner | NVLink | NVLS | a channel | its NIC copies | all copies | SMs | flush |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for name, one in GPUS.items():
        values = (
            one.tuner,
            one.nvlink,
            one.nvls_efficiency,
            one.channel_rate,
            one.nic_copy_rate,
            one.copy_rate,
            one.sms,
            one.flush,
        )
        rows.append(f"| `{name}` | {' | '.join(map(str, values))} |")
    return "\n".join(rows)


def with_profiles(keys: dict[str, Any]) -> dict[str, Any]:
    """A scenario as YAML holds it, with the values of the profiles that it names. What is no section is left
    to who checks it."""
    gpu = keys.get("gpu")
    model = gpu.get("model") if isinstance(gpu, dict) else None
    word = keys.get("costs")
    values: dict[str, object] = {}
    if isinstance(model, str) and model in GPUS:
        values |= GPUS[model].values()
    if word in (NONE, DEFAULT):
        values |= costs_of(word, str(model))
    for key, value in values.items():
        keys = _with(keys, key.split("."), value)
    return keys


def _with(keys: dict[str, Any], path: list[str], value: object) -> dict[str, Any]:
    """The same with a value, unless something is there."""
    name, *rest = path
    there = keys.get(name)
    if not rest:
        return keys if there is not None else {**keys, name: value}
    if there is not None and not isinstance(there, dict):
        return keys
    return {**keys, name: _with(there or {}, rest, value)}


def generation_warnings(model: str, tuner: str, nvlink_bps: int, channel_bps: int) -> Iterator[str]:
    """What is set alone of the constants of a generation. `model` and `tuner` may be `auto`; rates are those
    that the scenario comes to."""
    profile = GPUS.get(model)
    if profile is not None:
        for key, here, own in (
            ("ncclx.tuner.gpu", tuner, profile.tuner),
            ("host.nvlink.rate", format_rate(nvlink_bps), format_rate(parse_rate(profile.nvlink))),
            ("gpu.channel_rate", format_rate(channel_bps), format_rate(parse_rate(profile.channel_rate))),
        ):
            if here != own:
                yield f"{key} is {here}, and gpu.model: {model} has {own}"
        return
    if tuner == "auto":
        blackwell = nvlink_bps >= parse_rate(GPUS["b200"].nvlink)
        tuner = "blackwell" if blackwell else GPUS[USUAL].tuner
    if tuner != GPUS[USUAL].tuner and channel_bps == parse_rate(GPUS[USUAL].channel_rate):
        others = [name for name, one in GPUS.items() if one.tuner == tuner]
        yield (
            f"the tuner has the constants of {tuner} GPUs, and gpu.channel_rate is {USUAL}'s"
            f" {format_rate(channel_bps)}: `gpu.model: {others[0]}` sets all of them"
        )
