"""A language model's last layer with its vocabulary split over processes.

    torchrun --nproc-per-node 2 examples/vocab_parallel.py

Each process has a shard of the head and makes logits of its own classes only.  The loss is that of all classes: one
gather of three numbers a row, nothing in backward.  With Gloo on CPUs; on GPUs, one each, with NCCL.
"""

import os

import torch
import torch.distributed as dist

from online_softmax import distributed

TOKENS, HIDDEN, VOCABULARY, STEPS = 64, 32, 1000, 20


def main() -> None:
    cuda = torch.cuda.is_available() and torch.cuda.device_count() >= int(os.environ["LOCAL_WORLD_SIZE"])
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, size = dist.get_rank(), dist.get_world_size()
    start, stop = rank * VOCABULARY // size, (rank + 1) * VOCABULARY // size

    # The same on every process; only the head differs.
    draw = torch.Generator().manual_seed(0)
    hidden = torch.randn(TOKENS, HIDDEN, generator=draw).to(device)
    target = torch.randint(VOCABULARY, (TOKENS,), generator=draw).to(device)
    whole = torch.randn(VOCABULARY, HIDDEN, generator=draw) * 0.1
    head = whole[start:stop].clone().to(device).requires_grad_()
    step = torch.optim.AdamW([head], lr=0.05)

    for i in range(STEPS):
        # debug=True once: a mismatch between processes is an error that names it, not a hang.
        logits = hidden @ head.T
        loss = distributed.cross_entropy(
            logits, target, vocab_start=start, vocab_size=VOCABULARY, label_smoothing=0.1, debug=i == 0
        )
        step.zero_grad()
        loss.backward()
        step.step()
        if i == 0:
            first = loss.item()
            alone = torch.nn.functional.cross_entropy(hidden @ whole.to(device).T, target, label_smoothing=0.1).item()
    # The same layer without its logits in memory at once.
    chunked = distributed.linear_cross_entropy(
        hidden, head, target, vocab_start=start, vocab_size=VOCABULARY, label_smoothing=0.1, chunk_rows=16
    )
    if rank == 0:
        print(f"{size} processes, {stop - start} of {VOCABULARY} classes here")
        print(f"first loss {first:.6f}, on one device {alone:.6f}")
        print(f"after {STEPS} steps {chunked.item():.6f}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
