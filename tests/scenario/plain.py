"""The plainest library: one channel, rings, full slices, Simple, CPUs that cost nothing.

Closed forms are worked out for it, so tests of one mechanism begin from it and not from NCCL's defaults.
"""

from typing import Any, Final

NCCLX: Final[dict[str, Any]] = {
    "channels": 1,
    "slices": "filled",
    "protocol": "simple",
    "p2p_chunk": "auto",
    "tuner": {"model": "hops", "among": ("ring",)},
}
SECTIONS: Final[dict[str, dict[str, Any]]] = {
    "ncclx": NCCLX,
    "transport": {"timeout": 14},
    "host": {"proxy_cost": "0s", "nic_link_delay": "auto"},
}
TEXT: Final = """\
ncclx: {channels: 1, slices: filled, protocol: simple, p2p_chunk: auto, tuner: {model: hops, among: [ring]}}
transport: {timeout: 14}
host: {proxy_cost: 0s, nic_link_delay: auto}
"""
"""The same as lines of a scenario that has none of these sections."""
OVERRIDES: Final[dict[str, Any]] = {
    f"{section}.{key}": value for section, keys in SECTIONS.items() for key, value in keys.items()
}
"""The same as overrides."""


def plain(given: dict[str, Any]) -> dict[str, Any]:
    """A scenario's mapping that begins from it, section by section."""
    made = {**given, **{name: {**keys, **given.get(name, {})} for name, keys in SECTIONS.items()}}
    made["ncclx"]["tuner"] = {**NCCLX["tuner"], **made["ncclx"]["tuner"]}
    return made
