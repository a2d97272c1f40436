"""Section `overrides`: devices and links that are configured otherwise than the rest.

An entry names devices or links, and has the keys of `switch`, `link`, `nic`, `transport`, `host` and `gpu`
that are different there. All entries that name a device count, in their order: the last that has a key wins.
A map or a list is one value, and takes the place of the whole one; a section of another kind
(`kind: weighted`) has the defaults of its kind.

`*`, `?` and `[a-c]` stand for what they do in a shell. A name with a colon is a link's, its ends in either
order; a host's name is also that of all its NICs and GPUs.
"""

from collections.abc import Iterator, Mapping
from typing import Annotated, Any, Final

from emu.base.records import Location, RefusedError
from emu.base.spelling import shown
from emu.scenario.section import OneOf, PartOf, Refusal, Section
from emu.scenario.sections.host import GpuSection, HostSection
from emu.scenario.sections.link import LinkSection
from emu.scenario.sections.nic import NicSection, TransportSection
from emu.scenario.sections.switch import SwitchSection
from emu.scenario.yaml.problems import field_shape, fields
from emu.scenario.yaml.values import WILD, Reading, names

DEVICES_ACCEPTED: Final = 'a name or a pattern like "nic-3-*", "rtsw-0:ctsw-*" for links, or a list of them'
MOST_PATTERNS: Final = 65536
_LONGEST_PATTERN: Final = 140


def _read_devices(value: object) -> tuple[str, ...]:
    found = value if isinstance(value, tuple) else (value,)
    if not 0 < len(found) <= MOST_PATTERNS:
        raise RefusedError("names no device", DEVICES_ACCEPTED)
    for one in found:
        if not isinstance(one, str) or not one or len(one) > _LONGEST_PATTERN or not one.isprintable():
            raise RefusedError(f"{shown(one)} is no name of devices", DEVICES_ACCEPTED)
    return tuple(str(one) for one in found)


Devices = Annotated[
    tuple[str, ...],
    Reading(
        _read_devices,
        lambda value: value[0] if len(value) == 1 else list(value),
        DEVICES_ACCEPTED,
        {
            "anyOf": [
                {"type": "string", "minLength": 1, "maxLength": _LONGEST_PATTERN},
                {
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "string", "minLength": 1, "maxLength": _LONGEST_PATTERN},
                },
            ]
        },
        "name, pattern, or list of them",
    ),
]
Part = dict[str, Any] | None

COMMON: Final[tuple[Location, ...]] = (
    ("switch", "static_routes"),
    ("link", "flow_control"),
    ("link", "credits"),
    ("transport", "kind"),
    ("transport", "receive_queue"),
    ("transport", "udp_source_port"),
    ("transport", "data_priority"),
    ("transport", "control_priority"),
    ("host", "nvlink"),
    ("host", "node"),
    ("gpu", "model"),
)
"""What is one for the whole fabric: routes name their switch, ends of a link or queue pair agree,
servers are of one build."""


class OverrideSection(Section):
    """Exceptions for single devices and links."""

    devices: Devices
    """Devices or links, by name or pattern: "nic-3-*", "rtsw-0:ctsw-*", or a list. A host includes its NICs
    and GPUs."""
    switch: Annotated[Part, PartOf(SwitchSection)] = None
    """Settings of switches; of NICs `pfc` alone."""
    link: Annotated[Part, PartOf(LinkSection)] = None
    """Settings of links."""
    nic: Annotated[Part, PartOf(NicSection)] = None
    """Settings of NICs."""
    transport: Annotated[Part, PartOf(TransportSection)] = None
    """Settings of the queue pairs of NICs. A queue pair has the smaller `mtu` of its two ends."""
    host: Annotated[Part, PartOf(HostSection)] = None
    """Settings of hosts; `pcie`, `link_rate` and `link_delay` of single NICs or GPUs too."""
    gpu: Annotated[Part, PartOf(GpuSection)] = None
    """Settings of GPUs."""

    def check(self) -> Iterator[Refusal]:
        """Refuse what changes nothing, keys that all devices share, and links that are taken for devices."""
        parts = self.parts
        if not parts:
            yield Refusal((), "changes nothing", "a key of switch, link, nic, transport, host or gpu")
        for location in COMMON:
            if location[1] in parts.get(str(location[0]), ()):
                reason = f"{location[0]}.{location[1]} is one for the whole fabric"
                yield Refusal(location, reason, "the key outside of overrides")
        for section in parts:
            for pattern in self.devices:
                if (section == "link") != (":" in pattern):
                    what = "no link" if section == "link" else "a link, and has no such section"
                    reason = f"{pattern!r} is {what}"
                    accepted = 'two ends, like "rtsw-0:ctsw-*"' if section == "link" else "devices, or `link`"
                    yield Refusal((section,), reason, accepted)

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """What is different, by section."""
        found = {name: getattr(self, name) for name in SECTIONS}
        return {name: part for name, part in found.items() if part is not None}

    def has(self, key: str) -> bool:
        """Whether it changes a key, like `switch.buffer.pool`."""
        at: object = self.parts
        for step in key.split("."):
            at = at.get(step) if isinstance(at, Mapping) else None
        return at is not None

    def names(self, name: str) -> bool:
        """Whether it is for a device of this name."""
        return names(self.devices, name)

    def names_link(self, name: str) -> bool:
        """Whether it changes a link of this name; `a:b` is each of parallel links."""
        if self.link is None:  # `rtsw-*` names devices, and as a pattern would fit `rtsw-0:ctsw-0` too
            return False
        ends, slash, member = name.partition("/")
        a, _, b = ends.partition(":")
        both = (ends, f"{b}:{a}")
        known = (*both, *(f"{one}{slash}{member}" for one in both)) if slash else both
        return any(names(self.devices, one) for one in known)


SECTIONS: Final[Mapping[str, type[Section]]] = {
    "switch": SwitchSection,
    "link": LinkSection,
    "nic": NicSection,
    "transport": TransportSection,
    "host": HostSection,
    "gpu": GpuSection,
}


def is_pattern(text: str) -> bool:
    """Whether a name of devices stands for several."""
    return WILD.search(text) is not None


def with_part(section: Section, part: Mapping[str, Any]) -> Section:
    """The section with some keys of it different. Raises MistakesError."""
    model = type(section)
    return model.model_validate(_merged(model, section.model_dump(by_alias=True), part))


def _merged(model: type[Section], base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A section as YAML holds it, with keys of `part` in the place of its own."""
    known = fields(model)
    merged = dict(base)
    for key, value in part.items():
        field = known.get(key)
        if field is None:
            merged[key] = value
            continue
        if value is None:
            continue
        shape, there = field_shape(field), merged.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            if isinstance(shape, OneOf):
                merged[key] = _merged_kind(shape, there, value)
                continue
            if isinstance(shape, type):
                merged[key] = _merged(shape, there, value)
                continue
        merged[key] = value
    return merged


def _merged_kind(shape: OneOf, base: Mapping[str, Any], part: Mapping[str, Any]) -> dict[str, Any]:
    """A section of one of several kinds: of the kind that `part` asks for, or else the one that is there."""
    kind = str(part.get(shape.key) or base.get(shape.key))
    model = shape.model(kind)
    if model is None or kind != base.get(shape.key):
        return {**part, shape.key: kind}
    return _merged(model, base, part)
