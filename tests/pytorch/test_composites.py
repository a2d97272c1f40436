"""FLOPs of PyTorch's composites against hand formulas; operations without a price on a GPU are named."""

import importlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from emu.doors.pytorch.kernels import GPUS, KernelTimes
from emu.doors.pytorch.record import Kernel, Operation, Record
from emu.doors.pytorch.torchrun import Recording
from tests.pytorch.test_torchrun import plain, recorded

torch = pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
S, D, HEADS, BATCH = 256, 64, 4, 2
SCRIPT = f"""
import copy, torch, torch.nn as nn, torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention
S, D, HEADS, BATCH = {S}, {D}, {HEADS}, {BATCH}
x = torch.randn(BATCH, S, D, device="cuda", requires_grad=True)
heads = lambda one: one.unflatten(-1, (HEADS, -1)).transpose(1, 2)
mask = nn.Transformer.generate_square_subsequent_mask(S, device="cuda")
blocks = create_block_mask(lambda b, h, q, k: q >= k, None, None, S, S, device="cuda", BLOCK_SIZE=64)
compiled = torch.compile(flex_attention)
attention = nn.MultiheadAttention(D, HEADS, batch_first=True).cuda()
layer = nn.TransformerEncoderLayer(D, HEADS, 4 * D, batch_first=True, dropout=0.0)
stack = nn.TransformerEncoder(layer, 2).cuda()
lower = nn.TransformerDecoderLayer(D, HEADS, 4 * D, batch_first=True, dropout=0.0).cuda()
half = dict(device="cuda", dtype=torch.bfloat16, requires_grad=True)
few = [torch.randn(BATCH, n, S, 32, **half) for n in (8, 2, 2)]
experts = torch.randn(4, D, D, **half)
ends = torch.tensor([64, 128, 192, 256], dtype=torch.int32, device="cuda")
lstm, conv = nn.LSTM(D, D).cuda(), nn.Conv2d(16, 32, 3, padding=1).cuda()
image = torch.randn(2, 16, 28, 28, device="cuda", requires_grad=True)
square = torch.eye(64, device="cuda").requires_grad_()
@torch.inference_mode()
def unlearned():
    return F.linear(torch.randn(BATCH * S, D, device="cuda"), torch.randn(D, D, device="cuda"))
def inferred():
    with torch.inference_mode():
        F.scaled_dot_product_attention(*[torch.randn(BATCH, HEADS, S, D // HEADS, device="cuda")] * 3)
    return x
def softly():
    with torch.autocast("cuda", torch.bfloat16):
        return attention(x, x, x, need_weights=False)[0]
steps = dict(
    attention=lambda: attention(x, x, x, need_weights=False)[0],
    attention_with_weights=lambda: attention(x, x, x)[0],
    attention_causal=lambda: attention(x, x, x, need_weights=False, attn_mask=mask, is_causal=True)[0],
    attention_autocast=softly,
    encoder=lambda: stack(x),
    decoder=lambda: lower(x, x),
    flex=lambda: flex_attention(*[heads(x)] * 3, block_mask=blocks),
    flex_compiled=lambda: compiled(*[heads(x)] * 3),
    grouped_queries=lambda: F.scaled_dot_product_attention(*few, enable_gqa=True),
    experts=lambda: F.grouped_mm(x[0].to(torch.bfloat16), experts, offs=ends),
    lstm=lambda: lstm(x)[0],
    convolution=lambda: conv(image),
    inference=lambda: unlearned() * 0 + x.flatten(0, 1),
    inference_attention=inferred,
    qr=lambda: torch.linalg.qr(square)[0],
)
parameter = nn.Parameter(torch.zeros(1, device="cuda"))
optimizer = torch.optim.SGD([parameter], 0.1)
begin = nn.Identity()  # a step begins with a module's forward
for name, step in steps.items():
    (begin(step)().float().sum() + parameter.sum()).backward()
    optimizer.step()
"""
TOKENS = BATCH * S
PROJECTIONS = 2 * TOKENS * D * 4 * D
PRODUCTS = 4 * TOKENS * S * D
"""Of one attention, forward: queries by keys, and weights by values."""
FEED = 2 * TOKENS * 2 * 4 * D * D
FLASH = 1 + 2.5
"""Backward computes the weights again: two and a half times as many as forward."""
LEARNED = 1 + 2
"""A product has two in backward."""
WANTED = {
    "attention": LEARNED * PROJECTIONS + FLASH * PRODUCTS,
    "attention_with_weights": LEARNED * (PROJECTIONS + PRODUCTS),
    "attention_causal": LEARNED * PROJECTIONS + FLASH * PRODUCTS / 2,
    "attention_autocast": LEARNED * PROJECTIONS + FLASH * PRODUCTS,
    "encoder": 2 * (LEARNED * (PROJECTIONS + FEED) + FLASH * PRODUCTS),
    "decoder": LEARNED * (2 * PROJECTIONS + FEED) + FLASH * 2 * PRODUCTS,
    "flex": FLASH * PRODUCTS * 10 / 16,  # of 4 x 4 blocks, those at and below the diagonal
    "flex_compiled": FLASH * PRODUCTS,
    "grouped_queries": FLASH * 4 * BATCH * 8 * S * S * 32,
    "experts": LEARNED * 2 * S * D * D,
    "lstm": LEARNED * 2 * TOKENS * 8 * D * D - 2 * S * 4 * D * D,  # the first state is not learned
    "convolution": LEARNED * 2 * (2 * 28 * 28) * 16 * 32 * 9,
    "inference": 2 * TOKENS * D * D,
    "inference_attention": PRODUCTS,
    "qr": 0,
}


def flops(step: list[Operation]) -> int:
    return sum(one.flops for one in step if isinstance(one, Kernel))


@pytest.fixture(scope="module")
def composites(tmp_path_factory: pytest.TempPathFactory) -> Record:
    folder = tmp_path_factory.mktemp("composites")
    script = folder / "train.py"
    script.write_text(SCRIPT)
    return Recording([str(script)], 8, 8, GPUS["h100"], steps=len(WANTED)).play(0)


def test_flops_of_every_composite_are_those_of_the_hand_formula(composites: Record) -> None:
    found = {name: flops(list(step)) for name, step in zip(WANTED, composites.steps(), strict=True)}
    qr = found.pop("qr")
    assert found == {name: pytest.approx(flops, rel=1e-3) for name, flops in WANTED.items() if name != "qr"}
    assert qr < 10 * 64**3  # the few products of its backward


def test_an_operation_without_a_price_on_a_gpu_is_named(composites: Record) -> None:
    (named,) = (note for note in composites.notes if "without a price" in note)
    assert "linalg_qr (1)" in named
    assert "linalg_solve_triangular (1)" in named
    assert named.count("(") == 2  # no other: every kernel of the composites has a price
    ops = {one.op for one in composites.operations if isinstance(one, Kernel)}
    assert not [op for op in ops if "cpu" in op or "mkldnn" in op]


def test_a_kernel_with_flops_that_nobody_measured_takes_at_least_what_its_flops_take() -> None:
    flops = 2 * (64 * 56 * 56) * 128 * 256 * 9
    shapes = (64, 128, 56, 56), (256, 128, 3, 3)
    kernel = Kernel(0, "convolution", "bfloat16", shapes, flops, 2 * 64 * 56 * 56 * (128 + 256))
    ideal_us = flops / 989e12 * 1e6
    assert ideal_us < KernelTimes(GPUS["h100"]).us(kernel) < 3 * ideal_us


COPIES = """
import copy, torch, torch.nn as nn
layer = nn.TransformerEncoderLayer(1024, 16, batch_first=True, dropout=0.0)
model = nn.TransformerEncoder(layer, 2).cuda()
average = copy.deepcopy(model)
for one in average.parameters():
    one.requires_grad_(False)
assert {one.device.type for one in (*model.parameters(), *average.parameters())} == {"cuda"}
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    x = torch.randn(1, 128, 1024, device="cuda")
    model(x).sum().backward()
    optimizer.step()
    with torch.no_grad():
        for mean, one in zip(average.parameters(), model.parameters()):
            mean.lerp_(one, 0.01)
"""


def test_deep_copies_of_modules_without_data_are_on_the_gpu_as_well(tmp_path: Path) -> None:
    real, fake = (recorded(tmp_path, COPIES, fake=fake) for fake in (False, True))
    steps = [plain(list(one.steps())[2]) for one in (real, fake)]
    assert steps[0] == steps[1]


def test_flex_attention_computes_what_masked_attention_computes() -> None:
    flex = importlib.import_module("torch.nn.attention.flex_attention")
    kernels = importlib.import_module("emu.doors.pytorch.player.gpu_kernels")
    tape = importlib.import_module("emu.doors.pytorch.player.tape").Tape(
        Record(0, 1, "train.py", torch.__version__), 1
    )
    kernels.FlexAttention.tape = tape
    torch.manual_seed(1)
    given = [torch.randn(2, heads, 32, 16) for heads in (4, 2, 2)]
    slope = torch.full((), 0.5, requires_grad=True)
    mask = flex.create_block_mask(lambda b, h, q, k: q >= k, None, None, 32, 32, device="cpu", BLOCK_SIZE=16)

    def ours(q: Any, k: Any, v: Any) -> Any:
        def score(one: Any, b: Any, h: Any, row: Any, column: Any) -> Any:
            return one + slope * (column - row)

        whole = mask.as_tuple()
        return kernels.flex_attention(q, k, v, score, whole, 0.25, {})[0]

    def theirs(q: Any, k: Any, v: Any) -> Any:
        rows, columns = torch.arange(32)[:, None], torch.arange(32)[None]
        bias = torch.where(rows >= columns, slope * (columns - rows), -torch.inf)
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, enable_gqa=True)

    def both(function: Callable[..., Any]) -> list[Any]:
        leaves = [one.detach().requires_grad_() for one in given]
        out = function(*leaves)
        grads = torch.autograd.grad(out, [*leaves, slope], torch.linspace(-1, 1, out.numel()).view(out.shape))
        return [out, *grads]

    for mine, other in zip(both(ours), both(theirs), strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-4)
