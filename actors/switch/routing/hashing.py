"""Hashes of a switch: which fields of a packet choose among equal paths, and by which function.

ECMP hashes the 5-tuple (addresses, protocol, ports); protocol and destination port are the same for all
RoCEv2, so source and destination address and UDP source port tell flows apart. E-ECMP adds the BTH
destination queue pair, as a user-defined field, so that the queue pairs of one connection spread. Both with
`mix` are written out (`flow_hash`), because every hop of a default run computes them.

`FieldHash` is the rest. The key is the chosen fields, each as many bytes as it has in the packet (a DSCP one,
and two for the number of the port by which the packet came), in the order in which they are named. Over it
runs one of

* `mix`: 32 bits, not linear in key or seed; the high bits choose, so no group size is favoured;
* `crc16`, `crc32`: most significant bit first, the polynomial a knob, the seed as the initial value;
* `xor_fold`: the key's 16-bit words and the seed, XORed;
* `toeplitz`: receive-side scaling's matrix with its well-known key, the seed XORed to the result.

The hash is rotated right by the bit offset; its low bits (modulo the number of members) choose. Seeds differ
from switch to switch unless the scenario makes them equal, which is how polarisation is shown.

All but `mix` are linear over GF(2): two seeds give two hashes that differ by a constant, which swaps members
of a group of a power of two and separates no two flows that agreed before. Switches of two tiers with one
linear hash therefore use a fraction of the paths, whatever their seeds: polarisation. Another polynomial or
bit offset per tier cures it, or `mix` with differing seeds.

Sources: RDMA over Ethernet for Distributed AI Training at Meta Scale (SIGCOMM 2024), section 3; CRC
parameters of ITU-T V.41 (0x1021) and IEEE 802.3 (0x04C11DB7); Microsoft's specification of receive-side
scaling for Toeplitz and its key.

Not modelled: vendors' secret functions, resilient hashing tables, fields of headers that packets here do not
have (MAC addresses, VLAN, IPv6 flow label, tunnels).
"""

from __future__ import annotations

from typing import Final, Literal, get_args

from mypy_extensions import i64

from actors.kernel.mixing import MASK32, MULTIPLIER32, mix32
from actors.kernel.vectors import append, vec
from actors.wire.frame import UDP_PORT, Frame

ECMP: Final[i64] = 0
E_ECMP: Final[i64] = 1

_LAST_WORD: Final[i64] = 0x5BD1E995
"""Mixed in after the fields, so that the last of them is mixed as well as the first. The multiplier of
MurmurHash2; any odd constant does."""

POLICIES: Final = {"ecmp": ECMP, "e_ecmp": E_ECMP}


def flow_hash(frame: Frame, policy: i64, seed: i64) -> i64:
    """A 32-bit hash of the fields that the policy looks at."""
    # `mix32` written out, as in `Port.mix_arrival`.
    src: int = frame.src
    dst: int = frame.dst
    udp_source: int = frame.udp_source
    h: i64 = ((seed ^ src) * MULTIPLIER32) & MASK32
    h = ((h ^ (h >> 15) ^ dst) * MULTIPLIER32) & MASK32
    h = ((h ^ (h >> 15) ^ udp_source) * MULTIPLIER32) & MASK32
    if policy == E_ECMP:
        qpn: int = frame.qpn
        h = ((h ^ (h >> 15) ^ qpn) * MULTIPLIER32) & MASK32
    h = ((h ^ (h >> 15) ^ _LAST_WORD) * MULTIPLIER32) & MASK32
    return h ^ (h >> 15)


def choose(hash32: i64, members: i64) -> i64:
    """Which of `members` a 32-bit hash stands for: 0 <= choice < members <= 2**20."""
    return (hash32 * members) >> 32


MIX: Final[i64] = 0
CRC16: Final[i64] = 1
CRC32: Final[i64] = 2
XOR_FOLD: Final[i64] = 3
TOEPLITZ: Final[i64] = 4

FUNCTIONS: Final = {"mix": MIX, "crc16": CRC16, "crc32": CRC32, "xor_fold": XOR_FOLD, "toeplitz": TOEPLITZ}
POLYNOMIALS: Final = {CRC16: 0x1021, CRC32: 0x04C11DB7}

HashField = Literal[
    "src",
    "dst",
    "protocol",
    "udp_source",
    "udp_destination",
    "qpn",
    "psn",
    "opcode",
    "priority",
    "ingress_port",
    "dscp",
]
FIELDS: Final[tuple[str, ...]] = get_args(HashField)
"""What can be hashed, by number."""
_FIELD_BYTES: Final = (4, 4, 1, 2, 2, 3, 3, 1, 1, 2, 1)
_UDP: Final[i64] = 17
_NETWORK: Final[i64] = 0x0A000000
"""Addresses are 10.0.0.0 and on, a NIC each."""

RSS_KEY: Final = bytes.fromhex(
    "6d5a56da255b0ec24167253d43a38fb0d0ca2bcbae7b30b477cb2da38030f20c6a42b73bbeac01fa"
)


class FieldHash:
    """One switch's hash: function, fields, polynomial (0: the function's own), bit offset, seed."""

    def __init__(self, function: int, fields: list[int], polynomial: int, bit_offset: int, seed: int) -> None:
        self.function: i64 = function
        self.fields: vec[i64] = vec[i64](fields)
        self.widths: vec[i64] = vec[i64]([_FIELD_BYTES[field] for field in fields])
        narrow: bool = function == CRC16 or function == XOR_FOLD
        self.bits: i64 = 16
        self.mask: i64 = 0xFFFF
        if not narrow:
            self.bits = 32
            self.mask = 0xFFFFFFFF
        self.seed: i64 = seed
        self.bit_offset: i64 = bit_offset % self.bits
        self.by_flow: bool = FIELDS.index("psn") not in fields
        self._table: vec[i64] = vec[i64]()
        if function == CRC16 or function == CRC32:
            self._table = _crc_table(polynomial or POLYNOMIALS[function], self.bits)
        elif function == TOEPLITZ:
            self._table = _windows()

    def member(self, frame: Frame, count: i64) -> i64:
        """Which of `count` members the frame takes: 0 <= choice < count <= 2**20."""
        h: i64 = self.of(frame)
        offset: i64 = self.bit_offset
        if offset > 0:
            h = ((h >> offset) | (h << (self.bits - offset))) & self.mask
        if self.function == MIX:
            return (h * count) >> 32
        return h % count

    def of(self, frame: Frame) -> i64:
        """The hash of a frame's fields, of 16 or 32 bits, before the bit offset."""
        fields = self.fields
        at: i64 = 0
        if self.function == MIX:
            h: i64 = self.seed
            while at < len(fields):
                if fields[at] != 2 and fields[at] != 4:  # constants tell nobody apart
                    h = mix32(h, field_of(frame, fields[at]) & 0xFFFFFF)
                at += 1
            return mix32(h, _LAST_WORD)
        key: vec[i64] = vec[i64]()
        while at < len(fields):
            value: i64 = field_of(frame, fields[at])
            shift: i64 = 8 * self.widths[at]
            while shift > 0:
                shift -= 8
                key = append(key, (value >> shift) & 0xFF)
            at += 1
        return self.of_bytes(key)

    def of_bytes(self, key: vec[i64]) -> i64:
        """The hash of a key's bytes, for every function but `mix`."""
        h: i64 = self.seed & self.mask
        size: i64 = len(key)
        at: i64 = 0
        if self.function == XOR_FOLD:
            while at < size:
                h ^= key[at] << 8 if at & 1 == 0 else key[at]
                at += 1
            return h
        if self.function == TOEPLITZ:
            while at < size:
                bit: i64 = 0
                while bit < 8:
                    if (key[at] >> (7 - bit)) & 1:
                        h ^= self._table[8 * at + bit]
                    bit += 1
                at += 1
            return h
        top: i64 = self.bits - 8
        while at < size:
            h = ((h << 8) & self.mask) ^ self._table[((h >> top) ^ key[at]) & 0xFF]
            at += 1
        return h


def field_of(frame: Frame, field: i64) -> i64:
    """A field's value, as it stands in the packet; `field` is its place in FIELDS."""
    if field == 0:
        return _NETWORK | i64(frame.src)
    if field == 1:
        return _NETWORK | i64(frame.dst)
    if field == 2:
        return _UDP
    if field == 3:
        return i64(frame.udp_source)
    if field == 4:
        return UDP_PORT
    if field == 5:
        return i64(frame.qpn)
    if field == 6:
        return i64(frame.psn)
    if field == 7:
        return i64(frame.opcode)
    if field == 8:
        return i64(frame.priority)
    if field == 9:
        return i64(frame.whence >> 3)
    return i64(frame.dscp)


def _crc_table(polynomial: i64, bits: i64) -> vec[i64]:
    """The remainder of every byte, most significant bit first."""
    mask: i64 = 0xFFFF if bits == 16 else 0xFFFFFFFF
    table: vec[i64] = vec[i64]()
    byte: i64 = 0
    while byte < 256:
        h: i64 = byte << (bits - 8)
        bit: i64 = 0
        while bit < 8:
            h = ((h << 1) ^ polynomial if (h >> (bits - 1)) & 1 else h << 1) & mask
            bit += 1
        table = append(table, h)
        byte += 1
    return table


def _windows() -> vec[i64]:
    """The 32 bits of the key from each of its first 256 bits on."""
    whole = int.from_bytes(RSS_KEY, "big")
    length = 8 * len(RSS_KEY)
    return vec[i64]([(whole >> (length - 32 - at)) & 0xFFFFFFFF for at in range(length - 64)])
