"""What the emulator finds that a GPU would not tell, and that it takes assembly as it is meant."""

from __future__ import annotations

import itertools

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("cuda.core")

from tests.cuda.emulator.build import Builder  # noqa: E402
from tests.cuda.emulator.launch import Loaded  # noqa: E402
from tests.cuda.emulator.translate import translate  # noqa: E402

from online_softmax._cuda.compile import Source  # noqa: E402

KERNEL = """
#include "async.cuh"
using namespace online_softmax;
extern __shared__ uint4 words[];
extern "C" __global__ void __launch_bounds__(64) kernel(uint32* out, const uint4* from) {
    __shared__ uint32 of_thread[64], twice;
    %s
}
"""
RIGHT = """
of_thread[threadIdx.x] = threadIdx.x;
__syncthreads();
out[threadIdx.x] = of_thread[63 - threadIdx.x];
"""
COPY = """
copy_async(words + threadIdx.x, from + threadIdx.x);
copy_async_commit();
%s
out[threadIdx.x] = words[threadIdx.x].x;
"""


@pytest.fixture
def run(device, builder_folder, tmp_path):
    """A function that runs the body of a kernel of 64 threads, with memory for a word of each."""
    headers = device.builder.package / "_cuda"
    for name in ("_cuda/async.cuh", "_cuda/numbers.cuh", "state/state.h"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text((headers.parent / name).read_text())

    def launch(body, backwards=False):
        (tmp_path / "_cuda/kernel.cu").write_text(KERNEL % body)
        device.builder, ours = Builder(builder_folder, tmp_path), device.builder
        device.backwards = backwards
        try:
            loaded = Loaded(device, Source("_cuda/kernel.cu", "kernel", ()), 64, 1, 64 * 16)
        finally:
            device.builder = ours
        words, out = torch.arange(64 * 4 + 4, dtype=torch.int32), torch.full((64,), -1, dtype=torch.int32)
        loaded(1, out.data_ptr(), words[-words.data_ptr() // 4 % 4 :].data_ptr())
        return out.tolist()

    return launch


def test_threads_that_wait_for_each_other(run):
    assert run(RIGHT) == run(RIGHT, backwards=True) == list(range(63, -1, -1))


def test_a_missing_barrier_shows_in_one_order_of_threads_or_the_other(run):
    wrong = RIGHT.replace("__syncthreads();", "")
    assert run(wrong) != run(wrong, backwards=True)


def test_copies_land_when_they_are_waited_for(run):
    words = run(COPY % "copy_async_wait<0>();")
    assert [b - a for a, b in itertools.pairwise(words)] == [4] * 63
    assert run(COPY % "") == [-1] * 64
    assert run(COPY % "copy_async_wait<1>();") == [-1] * 64


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("if (threadIdx.x < 32) __syncthreads();", "waits for ever for threads of its block"),
        ("if (threadIdx.x % 2) __shfl_xor_sync(0xffffffffu, 1, 1);", "waits for ever for lanes of its warp"),
        ("words[64 + threadIdx.x].x = 0;", "a write behind dynamic shared memory"),
        ("copy_async(words + threadIdx.x, reinterpret_cast<const char*>(from) + 4);", "does not start on 16 bytes"),
        ("copy_async(out, from);", "not an address in shared memory"),
        ("barrier_expect(reinterpret_cast<uint64*>(of_thread), 8);", "an mbarrier that was not initialised"),
    ],
)
def test_what_would_hang_or_spoil_memory_is_an_error(run, body, message):
    with pytest.raises(RuntimeError, match=message):
        run(body)


def test_a_launch_with_too_few_arguments_is_an_error(device):
    softmax = device.module("ops.softmax.cuda")
    softmax.softmax(torch.zeros(1, 8), 1, torch.float32)
    with pytest.raises(RuntimeError, match="another number of parameters"):
        device.launched[-1](1, 0)


@pytest.mark.parametrize(
    ("cuda", "cpp"),
    [
        ('asm volatile("" : "+r"(x));', "{  }"),
        ('if (a) asm("mov.u32 %0, %%ctaid.x;" : "=r"(rank)); else f();',
         "if (a) { emulator::ptx::mov_u32((rank), emulator::ptx::ctaid_x()); } else f();"),
        ('asm("st.v2.b32 [%0], {%1, %2};" ::"l"(A::at + (1, 2)), "r"(at[0]), "r"(at[1]) : "memory");',
         "{ emulator::ptx::st_v2_b32((A::at + (1, 2)), (at[0]), (at[1])); }"),
        ('asm("{\\n.reg .pred p;\\nagain: try p, [%0], _;\\n@!p bra again;\\n}" ::"r"(b));',
         "{ __label__ ptx_again; { bool ptx_p; ptx_again: emulator::ptx::try(ptx_p, (b)); "
         "if (!ptx_p) goto ptx_again; } }"),
    ],
)  # fmt: skip
def test_assembly_becomes_calls(cuda, cpp):
    assert translate(cuda) == cpp
