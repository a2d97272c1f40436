"""Reader of torchtitan's configurations in Python (`config_registry.py`), without importing them.

Functions without arguments return a `Trainer.Config(...)` of literals, or take the configuration of another
such function and set attributes of it:

    def llama3_8b() -> Trainer.Config:
        return Trainer.Config(
            model_spec=model_registry("8B"),
            training=TrainingConfig(local_batch_size=1, seq_len=8192),
            parallelism=ParallelismConfig(tensor_parallel_degree=2),
        )

    def llama3_8b_long() -> Trainer.Config:
        config = llama3_8b()
        config.training.seq_len = 32768
        return config

Variables of a function stand for their values, and products of numbers are multiplied. What is read becomes
the table that its TOML was (`model.flavor`, `training.seq_len`, ...), and is read as
that. Of several functions the wanted one is named; a model of another kind than Llama 3 is refused there. A
value that is no literal is refused where it is one that counts.

Source: pytorch/torchtitan, `torchtitan/models/llama3/config_registry.py` (2026).
"""

import ast
from collections.abc import Mapping
from typing import Any, Final

from emu.base.spelling import did_you_mean, listed
from emu.doors.foreign.training_recipe import MOST, Recipe, RecipeError, read_torchtitan_keys
from emu.scenario.readers.foreign import LONGEST_SHOWN

MOST_CHARACTERS: Final = 2**20
MOST_STEPS: Final = 64
"""Configurations that are made of one another."""
FAMILIES: Final = ("llama3", "llama4", "qwen3", "deepseek", "flux", "gpt_oss")
"""How functions of torchtitan's own files begin, after the model that a flavor is of."""
_RETURNS: Final = "Trainer.Config"

Keys = dict[str, Any]
"""By `table.key`, as in a TOML."""


def is_trainer(text: str) -> bool:
    """Whether a text is Python that makes such configurations."""
    return _RETURNS in text and "def " in text and ("torchtitan" in text or "TrainingConfig(" in text)


def read_trainer(text: str, wanted: str = "") -> Recipe:
    """The job of one function. Raises FormatError."""
    if len(text) > MOST_CHARACTERS:
        raise RecipeError(1, f"{len(text)} characters", f"at most {MOST_CHARACTERS}")
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        line = getattr(error, "lineno", 1) or 1
        raise RecipeError(
            line, f"no Python: {getattr(error, 'msg', error)}", "a configuration of torchtitan"
        ) from None
    functions = {
        one.name: one
        for one in tree.body
        if isinstance(one, ast.FunctionDef)
        and one.returns is not None
        and ast.unparse(one.returns) == _RETURNS
    }
    if wanted and wanted not in functions:
        hint = did_you_mean(wanted, list(functions))
        raise RecipeError(1, f"there is no function {wanted[:LONGEST_SHOWN]!r}{hint}", listed(functions, 12))
    if not wanted and len(functions) != 1:
        reason = f"has {len(functions)} configurations: {listed(functions, 12)}"
        raise RecipeError(1, reason, "one, chosen with --config NAME")
    name = wanted or next(iter(functions))
    keys = _keys(functions, name, 0)
    family = next((one for one in FAMILIES if name.startswith(one)), "llama3")
    keys.setdefault("model.name", family)
    notes = () if name.startswith("llama3") else (f"The model of {name} is taken for one of Llama 3",)
    try:
        recipe = read_torchtitan_keys(keys)
        return recipe._replace(notes=(*recipe.notes, *notes))
    except RecipeError as error:
        raise RecipeError(functions[name].lineno, error.reason, error.accepted) from error


def _keys(functions: Mapping[str, ast.FunctionDef], name: str, depth: int) -> Keys:
    """What a function's configuration says."""
    function = functions.get(name)
    if function is None or depth > MOST_STEPS:
        raise RecipeError(1, f"{name[:LONGEST_SHOWN]} is not in this file", "a function of the file")
    made: dict[str, Keys] = {}
    values: dict[str, ast.expr] = {}
    for step in function.body:
        match step:
            case ast.Return(value=ast.Name(id=variable)) if variable in made:
                return _as_toml(made[variable])
            case ast.Return(value=ast.Call() as call):
                return _as_toml(_configured(functions, call, values, depth))
            case ast.Assign(targets=[ast.Name(id=variable)], value=ast.Call() as call) if _is_config(
                functions, call
            ):
                made[variable] = _configured(functions, call, values, depth)
            case ast.Assign(targets=[ast.Name(id=variable)], value=value):
                values[variable] = value
            case ast.Assign(targets=[ast.Attribute() as target], value=value):
                variable, path = _path(target)
                if variable in made:
                    made[variable] |= _flat(path, value, values)
            case ast.Expr(value=ast.Constant()) | ast.Import() | ast.ImportFrom() | ast.Assert():
                pass
            case _:
                reason = f"{name}: `{ast.unparse(step).splitlines()[0][:LONGEST_SHOWN]}` is not read"
                accepted = "literals in a Trainer.Config, and attributes that are set"
                raise RecipeError(step.lineno, reason, accepted)
    raise RecipeError(function.lineno, f"{name} returns no configuration", f"a {_RETURNS}(...)")


def _as_toml(keys: Keys) -> Keys:
    """The same with the names that the TOML had for what was renamed since."""
    found = dict(keys)
    sequence = found.pop("training.max_context_length", None)
    if sequence is not None:
        found["training.seq_len"] = sequence
    tokens = found.pop("training.num_tokens_per_microbatch_per_dp_rank", None)
    if isinstance(tokens, int) and isinstance(sequence, int) and sequence > 0:
        found["training.local_batch_size"] = tokens // sequence
    for called, mode in (("FullAC.Config", "full"), ("SelectiveAC.Config", "selective")):
        if f"job.activation_checkpoint={called}" in found:
            found["activation_checkpoint.mode"] = mode
    if "compile.enable_async_tensor_parallel" in found:
        key = "parallelism.enable_async_tensor_parallel"
        found[key] = found.pop("compile.enable_async_tensor_parallel")
    return found


def _is_config(functions: Mapping[str, ast.FunctionDef], call: ast.Call) -> bool:
    called = ast.unparse(call.func)
    return called.endswith(_RETURNS) or called in functions


def _configured(
    functions: Mapping[str, ast.FunctionDef], call: ast.Call, values: Mapping[str, ast.expr], depth: int
) -> Keys:
    called = ast.unparse(call.func)
    if called in functions:
        return dict(_keys(functions, called, depth + 1))
    found: Keys = {f"job.{called}": ""}
    for keyword in call.keywords:
        found |= _flat(keyword.arg or "**", keyword.value, values)
    return found


def _path(target: ast.Attribute) -> tuple[str, str]:
    """Variable and attributes of `config.training.seq_len`."""
    variable, _, path = ast.unparse(target).partition(".")
    return variable, path


def _flat(path: str, value: ast.expr, values: Mapping[str, ast.expr]) -> Keys:
    """A value as keys of a TOML: arguments of a configuration under its name, else the value itself. A name
    stands for what the function gave it."""
    if isinstance(value, ast.Name):
        value = values.get(value.id, value)
    if path == "model_spec":
        return _model(value)
    if isinstance(value, ast.Call):
        found = {f"job.{path}={ast.unparse(value.func)}": ""}
        for keyword in value.keywords:
            found |= {f"{path}.{keyword.arg or '**'}": _plain(keyword.value)}
        for argument in value.args:
            found |= {f"{path}.{ast.unparse(argument)[:LONGEST_SHOWN]}": _plain(argument)}
        return found
    return {path if "." in path else f"job.{path}": _plain(value)}


def _model(value: ast.expr) -> Keys:
    """The model of `model_registry("8B")`."""
    if isinstance(value, ast.Call) and value.args and isinstance(value.args[0], ast.Constant):
        found: Keys = {"model.flavor": value.args[0].value, f"job.model_spec={ast.unparse(value.func)}": ""}
        return found | {f"model.{keyword.arg}": _plain(keyword.value) for keyword in value.keywords}
    reason = f"the model is `{ast.unparse(value)[:LONGEST_SHOWN]}`"
    raise RecipeError(value.lineno, reason, 'model_registry("8B")')


def _plain(value: ast.expr) -> Any:
    """A literal or a product of some, or else its text."""
    if isinstance(value, ast.BinOp) and isinstance(value.op, ast.Mult):
        factors = _plain(value.left), _plain(value.right)
        if all(type(one) is int and 0 < one <= MOST for one in factors):
            return factors[0] * factors[1]
    try:
        return ast.literal_eval(value)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return f"`{ast.unparse(value)[:LONGEST_SHOWN]}`"
