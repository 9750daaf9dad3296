"""Causal attention over a sequence that no process has whole.

    torchrun --nproc-per-node 2 examples/ring_attention.py

Positions are dealt so that each process has the same causal work.  Keys and values travel a ring while the local block
is computed; partial results merge as states do.  With Gloo on CPUs; on GPUs, one each, with NCCL.
"""

import os

import torch
import torch.distributed as dist

import online_softmax as osm
from online_softmax import distributed

HEADS, KEY_HEADS, SIZE = 8, 2, 64
LENGTHS = [300, 1, 723]  # three documents, packed one after the other


def main() -> None:
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    draw = torch.Generator().manual_seed(0)
    shapes = [(1, heads, sum(LENGTHS), SIZE) for heads in (HEADS, KEY_HEADS, KEY_HEADS)]
    whole = [torch.randn(shape, generator=draw).to(device) for shape in shapes]

    q, k, v = (distributed.shard_sequence(x, lengths=LENGTHS).requires_grad_() for x in whole)
    out = distributed.ring_attention(q, k, v, causal=True, lengths=LENGTHS)
    out.square().sum().backward()
    gathered = distributed.gather_sequence(out, lengths=LENGTHS)

    if dist.get_rank() == 0:
        pieces = zip(*(x.split(LENGTHS, -2) for x in whole), strict=True)
        alone = torch.cat([osm.attention(*piece, causal=True) for piece in pieces], -2)
        print(f"{dist.get_world_size()} processes, {q.shape[-2]} of {sum(LENGTHS)} positions here")
        print(f"largest difference from one device: {(gathered - alone).abs().max().item():.1e}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
