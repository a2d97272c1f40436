"""Reader of SONiC switch configurations. Key `switch.config_db`.

What a file says becomes keys of `switch`, in the tree, before anything is validated; a key that the scenario
writes itself goes before. The effective scenario of a run directory is complete without the files.

The file of an override is that of its switches. What it does not say, and the file of all switches does, is
there as by default.

A file is what `show runningconfiguration all` prints, or /etc/sonic/config_db.json: JSON, tables of entries
of fields, all of them texts. Of its tables those about buffers, PFC, WRED, scheduling and QoS maps are
translated into keys of `switch`.

All ports of a switch have the same: where entries of ports differ in what would be one key here, that is
refused. Profiles differ from port to port by cable length, so of `xoff` (headroom) and `size` (reserve) of
one priority group the largest counts. Ports that are shut (`admin_status` down, or a profile whose name ends
with `_zero_profile`, which is what SONiC gives them) are skipped.

What a file leaves out is as on the box where the box has a default: no `pfc_enable`, no PFC; no
`wred_green_enable`, no marks; no `green_drop_probability`, 100 %; no POLL_INTERVAL, 100 ms; a `static_th` of
the whole pool or more is no limit. A lossless priority group without a profile in BUFFER_PG gets, on the box,
a line of pg_profile_lookup.ini by the speed and the cable of its port: so it is here if
`switch.pg_profile_lookup` names that file. What this tool fills in instead is a note.

Source: SONiC, schema of CONFIG_DB and its YANG models (BUFFER_POOL, BUFFER_PROFILE, BUFFER_PG, BUFFER_QUEUE,
PORT_QOS_MAP, QUEUE, WRED_PROFILE, SCHEDULER, PFC_WD and the four maps); its orchagent and buffermgrd for what
is not written.

Thresholds of marking may stand beside those of dropping (`ecn_green_min_threshold`, or
`green_ect_min_threshold`; sonic-net/SONiC#2433): then they are `switch.ecn`, and those of dropping are left
out. Where one of them is missing, that of dropping marks, as in SAI.

Not modelled: sizes of egress pools, rates of schedulers, WRED that drops, PFC_WD's action `alert`. A note
names fields that are not read, entries that no port uses, and all other tables.
"""

from collections.abc import Callable, Generator, ItemsView, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

from emu.base.errors import Problem, ScenarioError
from emu.base.records import Location, RefusedError
from emu.base.spelling import listed, shown
from emu.scenario.readers.foreign import LeftOut
from emu.scenario.yaml.document import Node, Place, decode, from_plain, opened, read_document
from emu.scenario.yaml.values import Reading

KEY: Final = "config_db"
LOOKUP: Final = "pg_profile_lookup"
PORTS_ACCEPTED: Final = "the same on every port"
ROLES_ACCEPTED: Final = "a file whose ports have one role: without the entries of the other ports"
PAIR_ACCEPTED: Final = (
    "one file of both: buffers and QoS merged, as config_db.json is; or switch.pfc.priorities in the scenario"
)
SHUT: Final = "_zero_profile"
"""What the names of profiles of ports that are shut end with."""
_DROPS: Final = ("green_min", "green_max", "green_drop")
"""How fields of WRED_PROFILE begin that say when to drop."""
POLL_MS: Final = 100
"""How often the watchdog looks where PFC_WD|GLOBAL has no POLL_INTERVAL (orchagent)."""
LINE_ACCEPTED: Final = "speed, cable, size, xon, xoff, threshold and, on some boxes, xon_offset"
COLUMNS: Final = ("size", "xon", "xoff", "dynamic_th", "xon_offset")
"""Columns of pg_profile_lookup.ini, behind speed and cable; the last may be missing."""
MAPS: Final = {
    "dscp_to_tc_map": ("DSCP_TO_TC_MAP", "dscp_to_tc", 63),
    "tc_to_queue_map": ("TC_TO_QUEUE_MAP", "tc_to_queue", 7),
    "tc_to_pg_map": ("TC_TO_PRIORITY_GROUP_MAP", "tc_to_priority_group", 7),
    "pfc_to_queue_map": ("MAP_PFC_PRIORITY_TO_QUEUE", "pfc_priority_to_queue", 7),
}
"""By the field of PORT_QOS_MAP: the table, the key of `switch.qos`, and the largest number that is mapped."""

MARKING: Final = {
    "min_threshold": ("ecn_green_min_threshold", "green_ect_min_threshold", "green_min_threshold"),
    "max_threshold": ("ecn_green_max_threshold", "green_ect_max_threshold", "green_max_threshold"),
    "probability": ("ecn_green_mark_probability", "green_ect_mark_probability", "green_drop_probability"),
}
"""Fields of WRED_PROFILE that say when to mark, the first that is there: by the two names that thresholds of
marking alone were given, and those of dropping."""
MOST_POOL_BYTES: Final = 2**28
"""More than the packet memory of any switch ASIC that has none beside it: a Tomahawk 5 has 165 MB."""
Fields = Mapping[str, Node]


class _Read(dict[str, Node]):
    """The fields of an entry, which knows those that somebody asked for."""

    def __init__(self, fields: Mapping[str, Node]) -> None:
        super().__init__(fields)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Node:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        """The field, which counts as read."""
        self.read.add(name)
        return super().get(name, default)

    def pairs(self) -> ItemsView[str, Node]:
        """All fields, which count as read."""
        self.read.update(self)
        return self.items()


_NO_FIELDS: Final = _Read({})


class _Use(NamedTuple):
    """Who refers to something, at which index: a priority group or queue of a port."""

    port: str
    number: int
    name: str
    place: Place


Lookup = Mapping[tuple[str, str], Fields]
"""Profiles of priority groups by speed in Mb/s and cable length, as pg_profile_lookup.ini has them."""


class Config:
    """The tables of one file, what was found wrong with them, and what they leave open.

    `lookup` is the box's pg_profile_lookup.ini, if it is there, and `lossless` the priorities that the
    scenario itself makes lossless, if it says so.
    """

    def __init__(
        self, root: Node, file: str, lookup: Lookup | None = None, lossless: Sequence[int] | None = None
    ) -> None:
        self._root = root
        self._file = file
        self._lookup = lookup
        self._lossless = None if lossless is None else list(lossless)
        self._entries: dict[str, dict[str, _Read]] = {}
        """By table, what was asked for."""
        self.problems: list[Problem] = []
        self.notes: list[str] = []
        self._enabled: Node | None = None
        """The `pfc_enable` of ports, where it says which priorities are lossless."""
        self._left_out: list[int] = []
        """Priority groups with headroom that it leaves out."""

    def settings(self) -> Iterator[tuple[Location, object]]:
        """Every key of `switch` that the file says something about, and its value."""
        if not isinstance(self._root.value, dict):
            self._refuse(self._root.place, "", "is no mapping of tables", "CONFIG_DB as JSON")
            return
        if not self._one_role():
            return
        lossless = yield from self._ports()
        pool_bytes = yield from self._pool()
        yield from self._groups(lossless, pool_bytes)
        yield from self._queue_limits(lossless)
        yield from self._marking()
        yield from self._scheduling()
        yield from self._watchdog()
        if note := self._unread().note():
            self.notes.append(note)

    def _unread(self) -> LeftOut:
        """Tables, entries and fields that nothing was read of."""
        found = LeftOut()
        for name in self._tables:
            if name not in self._entries:
                found.add(name)
        for name, entries in self._entries.items():
            for key, entry in entries.items():
                if not entry.read and entry:
                    found.add(f"{name}|{key}")
                for field in [one for one in entry if one not in entry.read] if entry.read else ():
                    found.add(f"{name} {field}")
        return found

    @property
    def _tables(self) -> Mapping[str, Node]:
        return self._root.value if isinstance(self._root.value, dict) else {}

    def _refuse(self, place: Place, where: str, reason: str, accepted: str) -> None:
        key = f"switch.{KEY}: {where}" if where else f"switch.{KEY}"
        self.problems.append(Problem(place.file or self._file, place.line, key, reason, accepted))

    def _table(self, name: str) -> dict[str, _Read]:
        """The entries of a table; none if it is not there."""
        if name not in self._entries:
            self._entries[name] = self._read_table(name)
        return self._entries[name]

    def _read_table(self, name: str) -> dict[str, _Read]:
        table = self._root.child(name)
        if table is None:
            return {}
        if not isinstance(table.value, dict):
            self._refuse(table.place, name, "is no mapping of entries", "CONFIG_DB as JSON")
            return {}
        found: dict[str, _Read] = {}
        for key, entry in table.value.items():
            if isinstance(entry.value, dict):
                found[key] = _Read(entry.value)
            else:
                self._refuse(entry.place, f"{name}|{key}", "is no mapping of fields", "CONFIG_DB as JSON")
        return found

    def _number(self, where: str, node: Node, least: int, most: int) -> int | None:
        """The number that a field holds, most often as a text."""
        text = str(node.value)
        digits = text.removeprefix("-")
        if digits.isascii() and digits.isdigit() and len(digits) < 16 and least <= int(text) <= most:
            return int(text)
        self._refuse(node.place, where, f"{shown(node.value)} is out of range", f"{least} to {most}")
        return None

    def _of_all_ports(self, table: str, field: str) -> Node | None:
        """What all ports of a table have in one field; None where none has it, or they differ."""
        first: tuple[str, Node] | None = None
        for port, entry in self._table(table).items():
            node = entry.get(field)
            if node is None or port.lower() == "global":
                continue
            if first is None:
                first = port, node
            elif str(node.value) != str(first[1].value):
                reason = f"{shown(node.value)}, and {shown(first[1].value)} on {first[0]}"
                self._refuse(node.place, f"{table}|{port}|{field}", reason, PORTS_ACCEPTED)
                return None
        return None if first is None else first[1]

    def _ports(self) -> Generator[tuple[Location, object], None, list[int] | None]:
        """PFC's priorities, and the maps that ports use. Returns the priorities; None if nothing has them."""
        lossless = self._lossless
        enabled = self._of_all_ports("PORT_QOS_MAP", "pfc_enable")
        if enabled is not None:
            self._enabled = enabled
            words = [word.strip() for word in str(enabled.value).split(",") if word.strip()]
            numbers = [
                self._number("PORT_QOS_MAP|pfc_enable", Node(word, enabled.place), 0, 7) for word in words
            ]
            written = [number for number in numbers if number is not None]
            lossless = written if lossless is None else lossless
            if written:
                yield ("pfc", "priorities"), written
            else:
                yield ("pfc", "enabled"), False
        elif self._table("PORT_QOS_MAP"):
            lossless = [] if lossless is None else lossless
            self.notes.append("PORT_QOS_MAP has no pfc_enable: PFC is off, as on the box")
            yield ("pfc", "enabled"), False
        for field, (table, key, most) in MAPS.items():
            named = self._of_all_ports("PORT_QOS_MAP", field)
            if named is not None:
                chosen = self._table(table).get(_plain(named.value))
                if chosen is None:
                    self._refuse(named.place, f"PORT_QOS_MAP|{field}", f"{table} has no such map", "its name")
                else:
                    rest = {} if key == "pfc_priority_to_queue" else {str(at): 0 for at in range(most + 1)}
                    yield ("qos", key), rest | dict(self._pairs(table, chosen, most))
        return lossless

    def _one_role(self) -> bool:
        """Whether no two ports have maps or lossless priorities that differ; otherwise that is refused."""
        fields = (*MAPS, "pfc_enable")
        first: dict[str, tuple[str, Node]] = {}
        without: list[str] = []
        for port, entry in self._table("PORT_QOS_MAP").items():
            if port.lower() == "global":
                continue
            differ = [
                field
                for field in fields
                if field in entry
                and _plain(entry[field].value) != _plain(first.get(field, (port, entry[field]))[1].value)
            ]
            if differ:
                node, (other, there) = entry[differ[0]], first[differ[0]]
                values = f"{node.value}; {there.value} on {other}"
                reason = f"ports have several roles: {', '.join(differ)} differ ({values})"
                self._refuse(node.place, f"PORT_QOS_MAP|{port}|{differ[0]}", reason, ROLES_ACCEPTED)
                return False
            first = {field: (port, entry[field]) for field in fields if field in entry} | first
            without += [port] * ("pfc_enable" not in entry)
        if without and "pfc_enable" in first:
            self.notes.append(f"PFC is off on {listed(without, 3)} on the box; here all ports have it")
        return True

    def _pairs(self, table: str, entry: _Read, most: int) -> Iterator[tuple[str, int]]:
        for text, node in entry.pairs():
            if most == 7 and text.isdigit() and 7 < int(text) < 16:
                self.notes.append(f"{table}|{text} is skipped: traffic classes are 0 to 7 here")
                continue
            mapped = self._number(f"{table}|{text}", Node(text, node.place), 0, most)
            number = self._number(f"{table}|{text}", node, 0, 7)
            if mapped is not None and number is not None:
                yield str(mapped), number

    def _pool(self) -> Generator[tuple[Location, object], None, int | None]:
        """Its size, which is returned, and that of the headroom that ports share."""
        pools = self._table("BUFFER_POOL")
        found: int | None = None
        name = "ingress_lossless_pool"
        if name not in pools:
            name = next((one for one, entry in pools.items() if _text(entry, "type") == "ingress"), "")
        for field, key in (("size", "pool"), ("xoff", "headroom_pool")):
            node = pools.get(name, _NO_FIELDS).get(field)
            if node is not None:
                size = self._number(f"BUFFER_POOL|{name}|{field}", node, 0, 2**46)
                if size:
                    found = size if field == "size" else found
                    yield ("buffer", key), f"{size}B"
        if found is not None and found > MOST_POOL_BYTES:
            self.notes.append(
                f"BUFFER_POOL|{name}|size is {found} bytes: an ASIC without memory beside it has some 165 MB"
                " at most, one with memory beside it is switch.deep_buffer here"
            )
        if name and found is None:
            self.notes.append(
                f"BUFFER_POOL|{name} has no size, which this box works out: buffer.pool is the default"
            )
        return found

    def _uses(self, table: str, field: str) -> list[_Use]:
        """Who uses what: entries of `Ethernet0|3-4`, or of several ports with commas between."""
        found: list[_Use] = []
        down = [port for port, of in self._table("PORT").items() if _text(of, "admin_status") == "down"]
        shut: dict[str, None] = {}
        for key, entry in self._table(table).items():
            node = entry.get(field)
            ports, _, span = key.rpartition("|")
            first, _, last = span.partition("-")
            if node is None or _plain(node.value) in ("", "NULL"):
                continue
            if not (first.isdigit() and (last or first).isdigit() and int(last or first) < 100):
                self._refuse(node.place, f"{table}|{key}", "has no number at its end", "Ethernet0|3-4")
                continue
            name = _plain(node.value)
            for port in ports.split(","):
                if name.endswith(SHUT) or port in down:
                    shut[port] = None
                    continue
                indices = range(int(first), min(int(last or first), 7) + 1)
                found += [_Use(port, index, name, node.place) for index in indices]
        if shut and table == "BUFFER_PG":
            self.notes.append(f"ports that are shut are skipped: {listed(shut, 3)}")
        return found

    def _used(self, users: str, field: str, table: str) -> dict[int, dict[str, tuple[Fields, _Use]]]:
        """By index: the entries of `table` that are used there, by name."""
        entries = self._table(table)
        found: dict[int, dict[str, tuple[Fields, _Use]]] = {}
        for use in self._uses(users, field):
            if use.name in entries:
                found.setdefault(use.number, {}).setdefault(use.name, (entries[use.name], use))
            else:
                where = f"{users}|{use.port}|{use.number}"
                self._refuse(use.place, where, f"{table} has no {use.name!r}", "a name that is there")
        return found

    def _agreed(
        self,
        users: str,
        used: dict[str, tuple[Fields, _Use]],
        fields: tuple[str, ...],
        accepted: str = PORTS_ACCEPTED,
    ) -> Fields:
        """What the used entries have in these fields; where they differ, the first's, and it is refused."""
        (first, one), *others = used.values()
        for other, use in others:
            for field in fields:
                if _text(first, field) != _text(other, field):
                    reason = f"{use.name} and {one.name} (on {one.port}) differ in {field}"
                    self._refuse(use.place, f"{users}|{use.port}|{use.number}", reason, accepted)
        return {field: first[field] for field in fields if field in first}

    def _threshold(self, table: str, found: Fields) -> Iterator[tuple[str, str]]:
        """The shared limit of a profile: `alpha` or `static`, and its value."""
        if "dynamic_th" in found:
            power = self._number(f"{table}|dynamic_th", found["dynamic_th"], -10, 10)
            if power is not None:
                yield "alpha", f"1/{2**-power}" if power < 0 else f"{2**power}/1"
        elif "static_th" in found:
            size = self._number(f"{table}|static_th", found["static_th"], 1, 2**46)
            if size is not None:
                yield "static", f"{size}B"

    def _groups(
        self, lossless: list[int] | None, pool_bytes: int | None
    ) -> Iterator[tuple[Location, object]]:
        profiles: dict[tuple[tuple[str, object], ...], list[int]] = {}
        every = self._used("BUFFER_PG", "profile", "BUFFER_PROFILE")
        self._check_groups(lossless or [], every)
        if "BUFFER_PG" in self._tables:
            self._look_up([group for group in lossless or () if group not in every], every)
        for group, used in sorted(every.items()):
            found = self._agreed("BUFFER_PG", used, ("dynamic_th", "static_th", "xon", "xon_offset"))
            made: dict[str, object] = {}
            for key, value in self._threshold("BUFFER_PROFILE", found):
                made["xoff" if key == "static" else key] = value
                if key == "static" and pool_bytes and int(value[:-1]) >= pool_bytes:
                    made["xoff"] = f"{pool_bytes}B"  # no limit but the pool itself
            for field, key in (("size", "reserve"), ("xoff", "headroom")):
                sizes = [
                    self._number(f"BUFFER_PROFILE|{name}|{field}", entry[field], 0, 2**46)
                    for name, (entry, _) in used.items()
                    if field in entry
                ]
                if sizes and None not in sizes:
                    made[key] = f"{max(size or 0 for size in sizes)}B"
                    if len(set(sizes)) > 1:
                        each = listed([str(size) for size in sorted(set(sizes), key=lambda one: one or 0)], 8)
                        self.notes.append(
                            f"BUFFER_PROFILE {field} of group {group} is {each}: the largest holds"
                        )
            if "headroom" in made:  # lossless: without an offset XON is the limit itself
                for field in ("xon", "xon_offset"):
                    node = found.get(field)
                    size = 0 if node is None else self._number(f"BUFFER_PROFILE|{field}", node, 0, 2**46)
                    made[field] = f"{size or 0}B"
            profiles.setdefault(tuple(made.items()), []).append(group)
        if profiles:
            yield ("buffer", "profiles"), [{"priorities": of, **dict(made)} for made, of in profiles.items()]

    def _check_groups(self, lossless: list[int], every: dict[int, dict[str, tuple[Fields, _Use]]]) -> None:
        """Refuse headroom of a group that `pfc_enable` leaves out: it would never pause."""
        if self._enabled is None or not lossless or self._lossless is not None:
            return
        for group, used in sorted(every.items()):
            name = next(
                (one for one, (entry, _) in used.items() if _text(entry, "xoff") not in ("", "0")), ""
            )
            if name and group not in lossless:
                self._left_out.append(group)
        if self._left_out:
            groups = listed(map(str, self._left_out))
            both = ",".join(map(str, sorted({*lossless, *self._left_out})))
            reason = (
                f"{shown(self._enabled.value)} leaves out {groups}, which BUFFER_PG gives a lossless profile"
                " (with xoff): it would never pause"
            )
            accepted = f"{both}, or profiles without xoff for {groups}"
            self._refuse(self._enabled.place, "PORT_QOS_MAP|pfc_enable", reason, accepted)

    def _look_up(self, groups: list[int], every: dict[int, dict[str, tuple[Fields, _Use]]]) -> None:
        """Profiles of lossless groups that BUFFER_PG lacks: of pg_profile_lookup.ini, or by default."""
        if not groups:
            return
        cables = {port: node for of in self._table("CABLE_LENGTH").values() for port, node in of.pairs()}
        if self._lookup is None:
            lengths = listed(dict.fromkeys(str(node.value) for node in cables.values()), 4) or "not written"
            self.notes.append(
                f"BUFFER_PG has no profile of lossless priority groups {listed(map(str, groups))}: the box"
                f" takes size, xoff and thresholds from its {LOOKUP}.ini by speed and cable ({lengths}),"
                f" which switch.{LOOKUP} reads; without it headroom is auto, the rest as by default"
            )
            return
        for port, node in cables.items():
            entry: Fields = self._table("PORT").get(port, {})
            speed, cable = _text(entry, "speed"), str(node.value)
            if cable == "0m" or _text(entry, "admin_status") == "down":
                continue
            found = self._lookup.get((speed, cable))
            if found is None:
                reason = f"no line of {LOOKUP} is for {speed or 'no'} Mb/s and {cable}"
                self._refuse(node.place, f"CABLE_LENGTH|{port}", reason, "PORT|speed and a cable that it has")
                return
            name = f"pg_lossless_{speed}_{cable}_profile"
            for group in groups:
                use = _Use(port, group, name, node.place)
                every.setdefault(group, {}).setdefault(name, (found, use))

    def _queue_limits(self, lossless: list[int] | None) -> Iterator[tuple[Location, object]]:
        """Limits of egress queues: of all lossy ones, and of all lossless ones."""
        every = self._used("BUFFER_QUEUE", "profile", "BUFFER_PROFILE")
        if every and lossless is None:
            if not self.problems:
                reason = "which priorities are lossless is in PORT_QOS_MAP (pfc_enable), which the file lacks"
                self._refuse(self._tables["BUFFER_QUEUE"].place, "BUFFER_QUEUE", reason, PAIR_ACCEPTED)
            return
        for kept, before in ((False, ""), (True, "lossless_")):
            together: dict[str, tuple[Fields, _Use]] = {}
            for queue, used in sorted(every.items()):
                if (queue in (*(lossless or ()), *self._left_out)) == kept:
                    together |= used
            if not together:
                continue
            accepted = f"one limit of all {'lossless' if kept else 'lossy'} queues"
            found = self._agreed("BUFFER_QUEUE", together, ("dynamic_th", "static_th"), accepted)
            pool = _plain(_text(next(iter(together.values()))[0], "pool"))
            size = _text(self._table("BUFFER_POOL").get(pool, {}), "size")
            for key, value in self._threshold("BUFFER_PROFILE", found):
                if key == "alpha":
                    yield ("buffer", f"{before}egress_alpha"), value
                elif not (size.isdigit() and int(value[:-1]) >= int(size)):  # else no limit but the pool
                    yield ("buffer", f"{before}egress_limit"), value

    def _marking(self) -> Iterator[tuple[Location, object]]:
        profiles: dict[tuple[str, str, str], list[int]] = {}
        for queue, used in sorted(self._used("QUEUE", "wred_profile", "WRED_PROFILE").items()):
            known = [field for fields in MARKING.values() for field in fields]
            found = self._agreed("QUEUE", used, ("ecn", "wred_green_enable", *known))
            modes = _text(found, "ecn").removeprefix("ecn_").split("_")
            alone = [field for field in known if field in found and not field.startswith(_DROPS)]
            names = [next((one for one in of if one in found), of[-1]) for of in MARKING.values()]
            if _text(found, "wred_green_enable").lower() != "true" and not alone:
                if "all" in modes or "green" in modes:
                    name = next(iter(used))
                    lacks = f"WRED_PROFILE|{name} has no wred_green_enable"
                    self.notes.append(f"{lacks}: queue {queue} marks nothing, as on the box")
                continue
            if "all" not in modes and "green" not in modes:
                continue  # every packet is green here, as it comes
            drops = [f"{one} {shown(found[one].value)}" for one in known if one in found and one not in names]
            if drops:
                which = f"WRED_PROFILE|{listed(used, 3)} ({', '.join(drops)})"
                enabled = _text(found, "wred_green_enable").lower() == "true"
                self.notes.append(
                    f"Left out: dropping by {which}" if enabled else f"{which} drops nothing, as on the box"
                )
            least, most, share = (
                self._number(f"WRED_PROFILE|{name}", found[name], 0, limit) if name in found else None
                for name, limit in zip(names, (2**46, 2**46, 100), strict=True)
            )
            if names[2] not in found:
                share = 100  # what orchagent writes
            if least is not None and most is not None:
                chance = f"{share}/100" if share else "1/1048576"  # a share of nothing is no share here
                profiles.setdefault((f"{least}B", f"{most}B", chance), []).append(queue)
        if profiles:
            made = [
                {"priorities": of, "kmin": kmin, "kmax": kmax, "pmax": pmax}
                for (kmin, kmax, pmax), of in profiles.items()
            ]
            yield ("ecn", "enabled"), True
            yield ("ecn", "scaled"), False
            yield ("ecn", "priorities"), sorted(queue for of in profiles.values() for queue in of)
            yield ("ecn", "profiles"), made

    def _scheduling(self) -> Iterator[tuple[Location, object]]:
        weights: dict[int, int] = {}
        for queue, used in self._used("QUEUE", "scheduler", "SCHEDULER").items():
            found = self._agreed("QUEUE", used, ("type", "weight"))
            if _text(found, "type") != "STRICT":
                node = found.get("weight")
                weight = 1 if node is None else self._number("SCHEDULER|weight", node, 1, 256)
                weights[queue] = weight or 1
        if weights:
            yield ("scheduling", "strict"), [queue for queue in range(8) if queue not in weights]
            yield ("scheduling", "weights"), [weights.get(queue, 1) for queue in range(8)]

    def _watchdog(self) -> Iterator[tuple[Location, object]]:
        detection = self._of_all_ports("PFC_WD", "detection_time")
        if detection is None:
            return
        yield ("pfc", "watchdog", "enabled"), True
        poll_ms = POLL_MS
        entries = self._table("PFC_WD")
        polled = entries.get("GLOBAL", entries.get("global", _NO_FIELDS)).get("POLL_INTERVAL")
        if polled is not None:
            poll_ms = self._number("PFC_WD|GLOBAL|POLL_INTERVAL", polled, 1, 10**6) or POLL_MS
        for key, node in (
            ("detection", detection),
            ("restoration", self._of_all_ports("PFC_WD", "restoration_time")),
        ):
            if node is not None:
                time_ms = self._number(f"PFC_WD|{key}_time", node, 1, 10**6)
                if time_ms is not None:
                    # SONiC's watchdog is a poll of counters: a time is over at the first poll behind it.
                    seen_ms = -(-time_ms // poll_ms) * poll_ms
                    if seen_ms != time_ms:
                        looks = f"the box looks every {poll_ms} ms"
                        self.notes.append(f"PFC_WD {key}_time {time_ms} ms takes {seen_ms} ms: {looks}")
                    yield ("pfc", "watchdog", key), f"{seen_ms}ms"
        action = self._of_all_ports("PFC_WD", "action")
        if action is None:
            return
        if action.value in ("drop", "forward"):
            yield ("pfc", "watchdog", "action"), action.value
        else:
            self._refuse(
                action.place, "PFC_WD|action", f"{shown(action.value)} is not modelled", "drop or forward"
            )


def _plain(value: object) -> str:
    """The name that a reference holds: of `[BUFFER_PROFILE|name]` the name, as older releases write it."""
    return str(value).removeprefix("[").removesuffix("]").rpartition("|")[2]


def _text(fields: Fields, name: str) -> str:
    """What a field holds; empty if it is not there."""
    node = fields.get(name)
    return "" if node is None else str(node.value)


ACCEPTED: Final = "a file; of single switches in overrides"


def _read(value: object) -> str:
    if isinstance(value, str) and len(value) <= 4096:
        return value
    raise RefusedError(f"{shown(value)} names no file", ACCEPTED)


ConfigFile = Annotated[
    str,
    Reading(_read, str, ACCEPTED, {"type": "string", "maxLength": 4096}, "file"),
]


def put_config_in_place(
    tree: Node,
    directory: Path,
    read_file: Callable[[Path], bytes],
    defaults: Callable[[], Mapping[str, Any]],
    notes: list[str],
) -> list[Problem]:
    """Translate the files that `config_db` names, of all switches and in overrides, into keys of `switch`.

    `defaults` makes the section as it is without any key: what the file of all switches says and that of an
    override does not is as by default there. What files leave open is noted. Returns what does not fit.
    """
    problems: list[Problem] = []
    section = tree.child("switch")
    own = Node({}, tree.place) if section is None else section.copy()
    everywhere, wrong = _translated(section, None, directory, read_file, notes)
    problems += wrong
    overrides = tree.child("overrides")
    for override in overrides.value if overrides is not None and isinstance(overrides.value, list) else ():
        part = override.child("switch")
        missing = {at: _default(defaults(), at) for at in everywhere if not _has(own, at)}
        _, wrong = _translated(part, (own, missing), directory, read_file, notes)
        problems += wrong
    return problems


def _default(defaults: Mapping[str, Any], location: Location) -> object:
    found: Any = defaults
    for step in location:
        found = found[step]
    return found


def _translated(
    section: Node | None,
    beside: tuple[Node, Mapping[Location, object]] | None,
    directory: Path,
    read_file: Callable[[Path], bytes],
    notes: list[str],
) -> tuple[dict[Location, object], list[Problem]]:
    """Write what the file of a section says into it; what that was, and what is wrong with it.

    `beside` is the section of all switches, whose own keys go before files, and what is to be written where
    the file says nothing.
    """
    named = None if section is None else section.child(KEY)
    if section is None or named is None or not isinstance(section.value, dict):
        return {}, []
    if not isinstance(named.value, str) or not named.value:
        return {}, []  # validation refuses what is no file
    place = section.keys.pop(KEY, named.place)
    del section.value[KEY]
    lookup, problems = _lookup_of(section, directory, read_file)
    own, missing = beside or (None, {})
    lossless = _given(section) if own is None or _given(own) is None else _given(own)
    settings, wrong = _settings(directory / named.value, place, read_file, (lookup, lossless), notes)
    problems += wrong
    for location, value in {**missing, **settings}.items():
        if own is None or not _has(own, location):
            _fill(section, location, value, place)
    if beside and not section.value:  # the scenario itself says all of it
        section.value[KEY] = Node("", place)
        section.keys[KEY] = place
    return settings, problems


def _given(section: Node) -> list[int] | None:
    """The lossless priorities that a section itself has."""
    pfc = section.child("pfc")
    node = None if pfc is None else pfc.child("priorities")
    found = None if node is None else node.plain()
    return [one for one in found if isinstance(one, int)] if isinstance(found, tuple) else None


def _lookup_of(
    section: Node, directory: Path, read_file: Callable[[Path], bytes]
) -> tuple[Lookup | None, list[Problem]]:
    """What the file that `pg_profile_lookup` names says, and what is wrong with it; the key is gone then."""
    named = section.child(LOOKUP)
    if named is None or not isinstance(named.value, str) or not named.value:
        return None, []
    assert isinstance(section.value, dict), section.value
    place = section.keys.pop(LOOKUP, named.place)
    del section.value[LOOKUP]
    path = directory / named.value
    try:
        text = decode(read_file(path), str(path))
    except ScenarioError as error:
        (problem,) = error.problems
        return None, [
            Problem(place.file, place.line, f"switch.{LOOKUP}", f"{path}: {problem.reason}", problem.accepted)
        ]
    found: dict[tuple[str, str], Fields] = {}
    problems = []
    for line, written in enumerate(text.splitlines(), 1):
        words = written.partition("#")[0].split()
        if not words:
            continue
        if len(words) not in (6, 7):
            problems.append(
                Problem(
                    str(path), line, f"switch.{LOOKUP}", f"{len(words)} words are no profile", LINE_ACCEPTED
                )
            )
            continue
        here = Place(str(path), line)
        fields = zip(COLUMNS, words[2:], strict=False)
        found[words[0], words[1]] = {name: Node(word, here) for name, word in fields}
    return found, problems


def _settings(
    path: Path,
    place: Place,
    read_file: Callable[[Path], bytes],
    beside: tuple[Lookup | None, list[int] | None],
    notes: list[str],
) -> tuple[dict[Location, object], list[Problem]]:
    """What a file says, by location in `switch`, and what is wrong with it."""
    try:
        text = decode(read_file(path), str(path))
        root, problems = read_document(text.replace("\t", " "), str(path))  # a tab is no space to YAML
    except ScenarioError as error:
        return {}, [
            Problem(place.file, place.line, f"switch.{KEY}", f"{path}: {problem.reason}", problem.accepted)
            for problem in error.problems
        ]
    config = Config(root, str(path), *beside)
    found = dict(config.settings())
    notes += [f"switch.{KEY}: {path.name}: {note}" for note in dict.fromkeys(config.notes)]
    return found, [*problems, *config.problems]


def _fill(section: Node, location: Location, value: object, place: Place) -> None:
    """Write a key of `switch`, unless the scenario has it."""
    node = opened(section, location[:-1], place)
    if node is None:
        return  # a section that is no mapping is refused for that
    last = str(location[-1])
    assert isinstance(node.value, dict), location
    if last not in node.value:
        node.value[last] = from_plain(value, place)
        node.keys[last] = place


def _has(section: Node, location: Location) -> bool:
    """Whether the scenario itself has a key."""
    node: Node | None = section
    for step in location:
        node = None if node is None else node.child(step)
    return node is not None
