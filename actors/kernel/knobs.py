"""Knobs of policies: their names, units, defaults and ranges, as plain data.

A policy (a congestion control, a routing policy, an arbiter, ...) lists its knobs in its class attribute
`knobs`; a subclass has those of its bases too, and one of the same name in place of theirs. Who reads
scenarios makes keys of them, checks what is written, and hands the values to the policy's `__init__`: an
attribute for each knob, with the unit last in its name. So `Knob("wait", "ps", "2us")` is written
`wait: 5us` and read as `knobs.wait_ps`, in picoseconds.
"""

from typing import TYPE_CHECKING, Any, Final, NamedTuple

QUANTITIES: Final = ("ps", "bytes", "bps")
"""Units that are written with a value, and stand last in the name of the attribute: time, size, rate."""
UNITS: Final = (*QUANTITIES, "number", "fraction", "flag", "priorities", "weights")
"""All units. `number`: a whole one. `flag`: true or false. `priorities`: a list of some of the eight, each
once. `weights`: a number for each of the eight."""
AUTO: Final = "auto"
"""A default: the policy, or who builds it, works the value out. It is read as None, and may be written."""
MTU: Final = "mtu"
"""A least size: the payload of a full packet."""

Value = int | str | bool | tuple[int, ...] | None
"""A default or a bound: quantities and fractions as a scenario writes them, the rest as it is."""


class Knob(NamedTuple):
    """A value of a policy that a scenario may set."""

    name: str
    """Its key in the scenario."""
    unit: str | tuple[str, ...]
    """One of `UNITS`, or the words among which to choose."""
    default: Value
    """What it is where the scenario does not say."""
    least: Value = None
    """The least that is accepted. None: 0, and more than that for rates and fractions."""
    most: Value = None
    """The most that is accepted. None: what the unit takes."""
    doc: str = ""
    """What it does, in a sentence, for the reference and for editors."""

    @property
    def attribute(self) -> str:
        """The name under which the policy reads it: with its unit, if that is a quantity's."""
        return f"{self.name}_{self.unit}" if self.unit in QUANTITIES else self.name


class Knobs:
    """The values of a policy's knobs, an attribute for each. Whoever reads scenarios derives from it."""

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any: ...


def knobs_of(policy: type[Any]) -> dict[str, Knob]:
    """The knobs of a policy's class by name, its bases' first. TypeError if it lists something else."""
    found: dict[str, Knob] = {}
    for owner in reversed(policy.__mro__):
        listed = vars(owner).get("knobs", ())
        if not isinstance(listed, (list, tuple)) or not all(isinstance(one, Knob) for one in listed):
            raise TypeError(f"`knobs` of {owner.__name__} is no list of Knob")
        found |= {one.name: one for one in listed}
    return found
