"""Is the calibration of kernels (docs/training.md) what published whole steps say?

Korthikanti et al. 2022, tables 3 to 5: Megatron-LM on A100s with tensor parallelism of 8, sequences of 2,048
tokens, a vocabulary of 51,200, sequence parallelism and scores recomputed.
"""

from typing import NamedTuple

import pytest

from emu import api
from emu.scenario.workloads.training import TrainingWorkload

PEAK_FLOPS_PER_S, TP, SEQUENCE, VOCABULARY = 312e12, 8, 2048, 51200
NVLINK_BYTES_PER_S, MEMORY_BYTES_PER_S = 260e9, 1.6e12


class Step(NamedTuple):
    """A row of table 5."""

    hidden: int
    heads: int
    layers: int
    micro_batch: int
    stages: int
    chunks: int
    batches: int
    published_s: float
    published_mfu: float


STEPS = (
    Step(6144, 64, 48, 4, 1, 1, 1, 1.10, 0.415),
    Step(12288, 96, 96, 1, 8, 3, 64, 13.75, 0.514),
    Step(20480, 128, 105, 1, 35, 3, 280, 37.83, 0.560),
    Step(25600, 160, 128, 1, 64, 1, 512, 71.49, 0.563),
)


def layer_flops(one: Step) -> float:
    """Of a GPU, forward and backward."""
    tokens = one.micro_batch * SEQUENCE
    return 72 * tokens * one.hidden**2 * (1 + SEQUENCE / (6 * one.hidden)) / TP


def head_flops(one: Step) -> float:
    return 6 * one.micro_batch * SEQUENCE * one.hidden * VOCABULARY / TP


def step_s(one: Step, gemm: float) -> float:
    values = one.micro_batch * SEQUENCE * one.hidden
    gathers_s = 8 * values * 2 * (TP - 1) / TP / NVLINK_BYTES_PER_S
    elementwise_s = 0.5e-3 * values / (4 * SEQUENCE * 6144)
    scores_s = (3.2e-3 + 1.3e-3) * one.heads * one.micro_batch / (64 * 4)
    matrices_s = layer_flops(one) / PEAK_FLOPS_PER_S / gemm
    head_s = head_flops(one) / PEAK_FLOPS_PER_S / gemm
    stage_s = one.layers / one.stages * (matrices_s + gathers_s + elementwise_s + scores_s) + head_s
    parameters = (12 * one.layers * one.hidden**2 / one.stages + VOCABULARY * one.hidden) / TP
    optimizer_s = parameters * 30 / MEMORY_BYTES_PER_S
    return stage_s * (one.batches + (one.stages - 1) / one.chunks) + optimizer_s


@pytest.mark.parametrize("one", STEPS)
def test_published_times_and_mfus_of_whole_steps_agree(one: Step) -> None:
    of_a_batch = layer_flops(one) * one.layers / one.stages + head_flops(one) / one.stages
    mfu = of_a_batch * one.batches / PEAK_FLOPS_PER_S / one.published_s
    assert mfu == pytest.approx(one.published_mfu, abs=0.002)


def test_matrix_products_of_the_calibration_are_those_of_four_published_whole_steps() -> None:
    workload = api.load("reproduce_megascale").scenario.jobs[0].workload
    assert isinstance(workload, TrainingWorkload)
    assert workload.kernels is not None
    gemm = float(workload.kernels.gemm or 0)
    longer = [step_s(one, gemm) / one.published_s - 1 for one in STEPS]
    assert max(map(abs, longer)) < 0.08
    assert sum(longer) / len(longer) == pytest.approx(0, abs=0.01)
    assert longer == pytest.approx([-0.022, -0.026, 0.003, 0.075], abs=0.001)  # as docs/training.md says
    of_layers = [step_s(one, 0.77) / one.published_s - 1 for one in STEPS]
    assert of_layers == pytest.approx([-0.076, -0.097, -0.078, -0.013], abs=0.001)
