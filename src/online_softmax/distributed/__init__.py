"""The same states across processes: softmax, log-sum-exp and cross-entropy over a sharded axis, and ring attention.

Needs torch and an initialised `torch.distributed`; works over Gloo on CPUs and NCCL on GPUs. Every function takes the
local shard and a process group (None: all processes) and is called by every process of the group in the same order.
Results that concern whole rows are the same on every process. Gradients flow into the local shard, as if the result
existed once: call backward on every process and add nothing up.
"""

from .checks import check_group
from .cross_entropy import cross_entropy
from .linear_cross_entropy import linear_cross_entropy
from .ring import ring_attention
from .sequence import gather_sequence, local_lengths, shard_sequence
from .softmax import all_merge, log_softmax, logsumexp, softmax

__all__ = [
    "all_merge",
    "check_group",
    "cross_entropy",
    "gather_sequence",
    "linear_cross_entropy",
    "local_lengths",
    "log_softmax",
    "logsumexp",
    "ring_attention",
    "shard_sequence",
    "softmax",
]
