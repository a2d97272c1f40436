"""Can what the pages give to users by its dotted name be imported, and what had another name before?"""

import importlib
import re
import sys

import pytest

from actors.compiled.moved_names import MOVED
from tests.tidy.tracked import text_of

PAGES = ("docs/plugins.md", "docs/python.md", "docs/open.md", "docs/planes.md", "docs/tutorial_control.md")
NAME = re.compile(r"\b(?:emu|actors)(?:\.\w+)+")
COMMANDS = re.compile(r"emu\.(?:yaml|json|md)\b")


def is_there(name: str) -> bool:
    """Whether a dotted name is a module, or an attribute of one."""
    module = name
    attributes: list[str] = []
    while module:
        try:
            found: object = importlib.import_module(module)
        except ImportError:
            module, _, last = module.rpartition(".")
            attributes.insert(0, last)
            continue
        for attribute in attributes:
            if not hasattr(found, attribute):
                return False
            found = getattr(found, attribute)
        return True
    return False


@pytest.mark.parametrize("page", PAGES)
def test_every_dotted_name_of_a_page_is_there(page: str) -> None:
    names = {name for name in NAME.findall(text_of(page)) if not COMMANDS.match(name)}
    assert [name for name in sorted(names) if not is_there(name)] == []


@pytest.mark.parametrize("before", sorted(MOVED))
def test_a_name_of_before_gives_the_module_of_now_and_says_so(before: str) -> None:
    sys.modules.pop(before, None)
    with pytest.warns(FutureWarning, match=re.escape(f"{before} is {MOVED[before]} now")):
        found = importlib.import_module(before)
    assert found is importlib.import_module(MOVED[before])
