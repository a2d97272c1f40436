"""What stands for a GPU's attention and RMS norm computes what PyTorch computes on a CPU, gradients too."""

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip(
    "torch", reason="torch is not installed: `make setup-torch` installs it", exc_type=ImportError
)
from emu.doors.pytorch.player.gpu_kernels import RmsNorm, attention, rms_norm  # noqa: E402
from emu.doors.pytorch.player.kernel_log import KernelLog  # noqa: E402
from emu.doors.pytorch.player.tape import Tape  # noqa: E402
from emu.doors.pytorch.record import Record  # noqa: E402


def gradients(function: Callable[..., Any], given: list[Any]) -> list[Any]:
    """The result, and the gradient of each tensor."""
    leaves = [one.detach().requires_grad_() for one in given]
    out = function(*leaves)
    out.backward(torch.linspace(-1, 1, out.numel()).view(out.shape).to(out.dtype))
    return [out, *(one.grad for one in leaves)]


def alike(
    function: Callable[..., Any], of_torch: Callable[..., Any], given: list[Any], tolerance: float
) -> None:
    expected = gradients(of_torch, given)
    tape = Tape(Record(0, 1, "train.py", torch.__version__), 1)
    RmsNorm.tape = tape
    with KernelLog(tape, lambda *_: 0):
        found = gradients(function, given)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    ("heads", "groups", "causal", "masked"),
    [
        (4, 4, True, False),
        (4, 4, False, False),
        (4, 2, True, False),
        (4, 1, False, True),
        (2, 2, False, True),
    ],
)
def test_attention(dtype: object, heads: int, groups: int, causal: bool, masked: bool) -> None:
    torch.manual_seed(1)
    given = [torch.randn(2, n, 24, 16).to(dtype) for n in (heads, groups, groups)]
    mask = (torch.rand(24, 24) < 0.7).logical_or(torch.eye(24, dtype=torch.bool)) if masked else None
    options: dict[str, Any] = {"is_causal": causal, "attn_mask": mask, "enable_gqa": heads != groups}
    alike(
        lambda *one: attention(*one, **options),
        lambda *one: torch.nn.functional.scaled_dot_product_attention(*one, **options),
        given,
        1e-5 if dtype is torch.float32 else 4e-2,
    )


@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("shape", [(64,), (8, 8)])
def test_rms_norm(weighted: bool, shape: tuple[int, ...]) -> None:
    torch.manual_seed(1)
    given = [torch.randn(3, 5, *shape), *([torch.randn(shape)] if weighted else [])]
    alike(
        lambda x, w=None: rms_norm(x, shape, w, 1e-6),
        lambda x, w=None: torch.nn.functional.rms_norm(x, shape, w, 1e-6),
        given,
        1e-5,
    )
