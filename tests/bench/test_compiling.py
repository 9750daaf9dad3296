"""Compiling libraries take part where their shapes are chosen, while their time lasts."""

from online_softmax.bench.compiling import NOT_COMPILED, ON_CUDA, SECONDS, Allowance
from online_softmax.bench.workload import Workload, cuda_workloads

CHOSEN = Workload("softmax", 64, 4096, "bfloat16")


def test_time_runs_out():
    allowance = Allowance("cuda", quick=False)
    assert allowance.refusal("quack", CHOSEN) is None
    allowance.spend("quack", SECONDS["quack"])
    assert allowance.refusal("quack", CHOSEN) == NOT_COMPILED
    assert allowance.refusal("torch.compile", CHOSEN) is None


def test_shapes_that_are_not_chosen_and_quick_runs_are_left_out():
    assert Allowance("cuda", quick=False).refusal("quack", CHOSEN._replace(columns=4097)) == NOT_COMPILED
    assert Allowance("cpu", quick=False).refusal("torch.compile", CHOSEN._replace(columns=4097)) is None
    assert Allowance("cuda", quick=True).refusal("quack", CHOSEN) == NOT_COMPILED


def test_libraries_that_do_not_compile_always_take_part():
    assert Allowance("cuda", quick=True).refusal("torch", CHOSEN) is None


def test_every_chosen_shape_is_on_the_gpu_s_list():
    listed = {(w.operation, w.dtype, w.columns) for w in cuda_workloads()}
    for lengths in ON_CUDA.values():
        for (operation, dtype), columns in lengths.items():
            assert {(operation, dtype, n) for n in columns} <= listed


def test_everywhere_leaves_nobody_out():
    allowance = Allowance("cuda", quick=False, everywhere=True)
    for library, seconds in SECONDS.items():
        allowance.spend(library, 2 * seconds)
        assert allowance.refusal(library, CHOSEN._replace(columns=4097)) is None
