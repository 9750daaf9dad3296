"""The README's Python runs as it stands, each block by itself, as a reader would paste it.

Blocks marked ```python cuda need a CUDA device.
"""

import re
from pathlib import Path

import pytest
import torch

README = Path(__file__).parents[1] / "README.md"
BLOCKS = re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL)
CUDA_BLOCKS = re.findall(r"```python cuda\n(.*?)```", README.read_text(), re.DOTALL)


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_each_block_of_the_readme_runs(block):
    exec(compile(BLOCKS[block], f"README.md, block {block}", "exec"), {})


def test_blocks_for_a_gpu_are_python():
    assert CUDA_BLOCKS
    for block in CUDA_BLOCKS:
        compile(block, "README.md", "exec")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("block", CUDA_BLOCKS)
def test_each_block_for_a_gpu_runs(block):
    exec(compile(block, "README.md", "exec"), {})


def test_the_log_sum_exp_of_the_mapped_file_is_the_one_shown(capsys):
    block, shown = next((b, re.search(r"# (\d+\.\d+)$", b, re.MULTILINE)) for b in BLOCKS if "memmap" in b)
    exec(compile(block, "README.md", "exec"), {})
    assert capsys.readouterr().out.strip() == shown[1]
