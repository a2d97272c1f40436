"""Does `make near` lead from a module to the tests of it?"""

import pytest

from tests.near import nearest


@pytest.mark.parametrize(
    ("module", "test"),
    [
        ("actors/optional/hpcc.py", "tests/nic/test_hpcc.py"),
        ("actors/optional/deep.py", "tests/switch/test_deep.py"),
        ("emu/doors/fit/fitting.py", "tests/fit/test_fit.py"),
        ("emu/base/units.py", "tests/scenario/test_units.py"),
        ("tests/kernel/test_keys.py", "tests/kernel/test_keys.py"),
    ],
)
def test_the_test_of_a_module_is_among_the_eight_nearest(module: str, test: str) -> None:
    assert test in nearest([module])[:8]


def test_nothing_is_near_to_a_page() -> None:
    assert nearest(["docs/design.md"]) == []
