"""Reader of the topology of a server that NCCL writes (`NCCL_TOPO_DUMP_FILE`) and takes (`NCCL_TOPO_FILE`).

XML: a `system` of `cpu`s, below them `pci` devices and bridges within one another, below those `gpu` with its
`nvlink`s and `nic` with its `net`s. A dump has all of it. What a cloud gives its users has only `pci`, whose
class says what is there: 0x03.... a GPU (0x12.... an accelerator of AMD), 0x02.... a NIC.

    GPUs      in the order of `dev`; of `pci` alone, in the order of the file
    NICs      the `net`s of the highest speed, in the order of the GPUs that they are nearest to by common
              bridges; slower ones (storage, management) are left out and named
    NVLink    links of a GPU times what a link of its generation carries of payload each way
    PCIe      the slowest known link between a NIC and its CPU: GT/s x lanes x 63/64

A dump of several servers (`host_hash` differs: Multi-Node NVLink) is read as its first one.

The file is not trusted: its size, depth and counts are bounded, and entities are refused.

Sources: NCCL, `src/graph/xml.cc` and `topo.cc`; RCCL, `xgmi`; PCI class codes (PCI-SIG); payload of an
NVLink: NCCL 2.30, `src/graph/topo.h` (of 25 GB/s of an H100's link 20.6 are left of headers); of an xGMI link
AMD's data sheets of MI100 (46), MI200 (50) and MI300 (64).

Not modelled: sockets and the way between them, bridges that NICs share, C2C.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final, NamedTuple
from xml.etree import ElementTree as ET

from emu.base.errors import FormatError
from emu.base.spelling import listed

MOST_CHARACTERS: Final = 2**22
MOST_DEVICES: Final = 1024
DEEPEST: Final = 64
MOST_MBPS: Final = 10**7
GBPS: Final = 10**9
_NVLINK_GBYTES: Final = {60: 18.0, 70: 20.0, 80: 20.0, 86: 12.0, 87: 20.0, 90: 20.6, 100: 40.1}
"""By the least `sm` of a generation, GB/s of a link each way."""
_XGMI_GBYTES: Final = {"906": 46, "908": 46, "90a": 50, "910": 50, "94": 64, "95": 64}
"""By the beginning of `gcn`, the same."""
_READ: Final = {
    "system": (),
    "cpu": ("host_hash",),
    "pci": ("busid", "class", "link_speed", "link_width"),
    "gpu": ("dev", "sm", "gcn"),
    "nvlink": ("count",),
    "xgmi": ("count",),
    "nic": (),
    "net": ("name", "speed"),
}
"""Elements, and their attributes that are read."""
_SPEED: Final = r"(\d+(?:\.\d+)?) GT/s"


class NcclTopologyError(FormatError):
    """A file that is no such topology."""


class Nic(NamedTuple):
    """One network interface."""

    name: str
    """As the file calls it; of `pci` alone, its address."""
    rate_bps: int
    """0: the file does not say."""
    pcie_bps: int
    """What the slowest known link to its CPU carries; 0: none is known."""
    gpu: int
    """Its nearest GPU, the first of them."""


class Machine(NamedTuple):
    """One server."""

    gpus: tuple[str, ...]
    """What the file calls them."""
    nics: tuple[Nic, ...]
    """In the order of their GPUs."""
    nvlink_bps: int | None
    """NVLink rate of a GPU, each way; 0: they have none; None: the file does not say."""
    links: str
    """NVLink or xGMI, with count and rate."""
    left_out: tuple[str, ...]
    """What the file has beside."""


class _Device(NamedTuple):
    """A GPU, net or PCI device and the bridges above it, outermost first."""

    node: ET.Element
    above: tuple[ET.Element, ...]


def read_xml(text: str, accepted: str) -> ET.Element:
    """The outermost element of a file that is not trusted. Raises NcclTopologyError."""
    if len(text) > MOST_CHARACTERS:
        raise NcclTopologyError(1, f"{len(text)} characters", f"at most {MOST_CHARACTERS}")
    found = re.search(r"<!(DOCTYPE|ENTITY)", text)
    if found:
        line = text.count("\n", 0, found.start()) + 1
        raise NcclTopologyError(line, "a document type, which may hold entities", "elements alone")
    try:
        return ET.fromstring(text)  # noqa: S314 - no entities, and of bounded size
    except ET.ParseError as error:
        raise NcclTopologyError(error.position[0], f"no XML: {error}", accepted) from error


def read_machine(text: str) -> Machine:
    """The server of a file. Raises NcclTopologyError."""
    root = read_xml(text, "a <system> of NCCL")
    if root.tag != "system":
        raise NcclTopologyError(1, f"a <{root.tag[:40]}>", "a <system>, as NCCL_TOPO_DUMP_FILE is")
    hosts = list(dict.fromkeys(cpu.get("host_hash", "") for cpu in root.iter("cpu")))
    left_out = [f"{len(hosts) - 1} more servers (host_hash)"] if len(hosts) > 1 else []
    devices = [
        one
        for top in root
        if top.tag != "cpu" or top.get("host_hash", "") == hosts[0]
        for one in _devices(top, ())
    ]
    gpus, dumped = _gpus(devices)
    nets = [one for one in devices if one.node.tag == "net"]
    if not nets:
        nets = [one for one in devices if _class(one.node).startswith("0x02")]
    if not gpus:
        raise NcclTopologyError(1, "no GPU in it", "a <gpu>, or a <pci> of class 0x03....")
    if not nets:
        raise NcclTopologyError(1, "no NIC in it", "a <net>, or a <pci> of class 0x02....")
    if max(len(gpus), len(nets)) > MOST_DEVICES:
        raise NcclTopologyError(1, "too many GPUs or NICs", f"at most {MOST_DEVICES}")
    fastest = max(_net_bps(one.node) for one in nets)
    slower = [one for one in nets if _net_bps(one.node) < fastest]
    left_out += [f"{_name(one.node)} ({_net_bps(one.node) // GBPS}G)" for one in slower]
    nics = _in_order([one for one in nets if _net_bps(one.node) == fastest], gpus)
    nvlink_bps, links = _links(gpus) if dumped else (None, "")
    left_out += _unread(root, dumped=dumped)
    return Machine(tuple(_name(one.node) for one in gpus), tuple(nics), nvlink_bps, links, tuple(left_out))


def _unread(root: ET.Element, *, dumped: bool) -> Iterator[str]:
    """Attributes that are not read, with their first values, and elements that are not known; of PCIe links
    all are named, for only the slowest on the way of a NIC counts."""
    values: dict[str, dict[str, None]] = {}
    for element in root.iter():
        if element.tag == "pci":
            if dumped:
                for name in ("busid", "class"):
                    values.setdefault(f"{name} of pci", {})[element.get(name, "")[:40]] = None
            link = f"{element.get('link_speed', '')[:40]} x{element.get('link_width', '')[:40]}"
            values.setdefault("all but the slowest PCIe link of a NIC", {})[link] = None
        if element.tag == "gpu" and element.get("gcn") is not None:
            values.setdefault("sm of gpu", {})[element.get("sm", "")[:40]] = None
        if element.tag not in _READ:
            values.setdefault(f"<{element.tag[:40]}>", {})
            continue
        for name, value in element.attrib.items():
            if name not in _READ[element.tag]:
                values.setdefault(f"{name[:40]} of {element.tag}", {})[value[:40]] = None
    for what, of in values.items():
        yield f"{what} ({listed(of, 24)})" if of else what


def _devices(node: ET.Element, above: tuple[ET.Element, ...]) -> Iterator[_Device]:
    if len(above) > DEEPEST:
        raise NcclTopologyError(1, "elements within one another", f"{DEEPEST} at most")
    yield _Device(node, above)
    for below in node:
        yield from _devices(below, (*above, node))


def _gpus(devices: Sequence[_Device]) -> tuple[list[_Device], bool]:
    """The GPUs, and whether the file has them as such."""
    dumped = [one for one in devices if one.node.tag == "gpu"]
    if dumped:
        return sorted(dumped, key=lambda one: _number(one.node.get("dev", ""))), True
    return [one for one in devices if _class(one.node)[:4] in ("0x03", "0x12")], False


def _class(node: ET.Element) -> str:
    return node.get("class", "") if node.tag == "pci" else ""


def _number(text: str) -> int:
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0


def _name(node: ET.Element) -> str:
    if node.tag == "gpu":
        return f"gpu {_number(node.get('dev', ''))}"
    name = node.get("name", node.get("busid", "?"))
    return "".join(sign for sign in name[:40] if sign.isprintable())


def _net_bps(node: ET.Element) -> int:
    """NCCL writes a net's speed in Mbit/s. 0: not known, as of what no NIC has."""
    mbps = _number(node.get("speed", "")) if node.tag == "net" else 0
    return mbps * 10**6 if mbps <= MOST_MBPS else 0


def _in_order(nets: Sequence[_Device], gpus: Sequence[_Device]) -> Iterator[Nic]:
    """Each with its nearest GPU, in the order of these. Of nets as near as others, GPUs take turns."""
    taken: dict[int, int] = {}
    placed: list[tuple[int, int, Nic]] = []
    for at, net in enumerate(nets):
        near = [_shared(net, gpu) for gpu in gpus]
        nearest = [place for place, common in enumerate(near) if common == max(near)]
        gpu = min(nearest, key=lambda place: (taken.get(place, 0), place))
        taken[gpu] = taken.get(gpu, 0) + 1
        pcie_bps = _pcie_bps(net, gpus[gpu], near[gpu])
        placed.append((gpu, at, Nic(_name(net.node), _net_bps(net.node), pcie_bps, gpu)))
    yield from (nic for _, _, nic in sorted(placed))


def _shared(one: _Device, other: _Device) -> int:
    """How many of their bridges are the same."""
    both = zip(one.above, other.above, strict=False)
    return next((at for at, (a, b) in enumerate(both) if a is not b), min(len(one.above), len(other.above)))


def _pcie_bps(net: _Device, gpu: _Device, shared: int) -> int:
    """Rate of the slowest link between a net and its GPU. What is written of the lowest bridge that they
    share is its link upwards, which their data does not take."""
    way = [node for one in (net, gpu) for node in (*one.above, one.node)[shared:]]
    known = [_pci_bps(node) for node in way if node.tag == "pci"]
    return min((rate for rate in known if rate), default=0)


def _pci_bps(node: ET.Element) -> int:
    """Payload of a PCIe link as `host.pcie.rate` counts it: 504G for 16 lanes of 32 GT/s. 0: not known."""
    found = re.match(_SPEED, node.get("link_speed", "")[:20])
    lanes = _number(node.get("link_width", ""))
    return int(Fraction(found[1]) * GBPS * lanes * 63 / 64) if found else 0


def _links(gpus: Sequence[_Device]) -> tuple[int, str]:
    """What the GPU with the fewest links has."""
    found = []
    for gpu in gpus:
        count = sum(_number(one.get("count", "1")) for one in gpu.node if one.tag in ("nvlink", "xgmi"))
        found.append((count, _link_gbytes(gpu.node.attrib)))
    count, gbytes = min(found)
    kind = "xGMI" if any(gpu.node.find("xgmi") is not None for gpu in gpus) else "NVLink"
    return round(count * gbytes * 8 * GBPS), f"{count} links of {gbytes:g} GB/s, {kind}"


def _link_gbytes(gpu: Mapping[str, str]) -> float:
    gcn = gpu.get("gcn", "").removeprefix("gfx")
    for begins, gbytes in _XGMI_GBYTES.items():
        if gcn.startswith(begins):
            return gbytes
    sm = _number(gpu.get("sm", ""))
    return next(
        (gbytes for least, gbytes in sorted(_NVLINK_GBYTES.items(), reverse=True) if sm >= least), 20.0
    )
