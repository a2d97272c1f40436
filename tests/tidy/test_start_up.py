"""Does a command load and read no more than it needs?"""

import importlib

from pydantic import BaseModel

from tests.tidy.tracked import PACKAGES, python_files


def models() -> list[type[BaseModel]]:
    """Every pydantic model of ours."""
    for name in python_files(*PACKAGES):
        importlib.import_module(name.removesuffix(".py").removesuffix("/__init__").replace("/", "."))

    def below(model: type[BaseModel]) -> list[type[BaseModel]]:
        return [found for child in model.__subclasses__() for found in (child, *below(child))]

    return [model for model in below(BaseModel) if model.__module__.startswith(("emu.", "actors."))]


def test_no_model_parses_its_source_when_it_is_imported() -> None:
    found = models()
    assert len(found) > 100
    assert [one.__name__ for one in found if one.model_config.get("use_attribute_docstrings")] == []
