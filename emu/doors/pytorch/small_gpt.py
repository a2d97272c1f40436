"""A small GPT by DDP or FSDP2, as one writes it for a GPU cluster: `emu new torch` copies it.

emu torchrun --ranks 16 small_gpt.py --bucket-mb 25
emu torchrun --ranks 16 small_gpt.py --fsdp
torchrun --nproc-per-node 8 small_gpt.py                 # the same file on real GPUs
"""

import argparse
import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        parts = self.qkv(self.norms[0](x)).view(batch, length, 3, self.heads, width // self.heads)
        q, k, v = parts.permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(batch, length, width))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))


options = argparse.ArgumentParser()
options.add_argument("--fsdp", action="store_true")
options.add_argument("--bucket-mb", type=float, default=25, help="DDP's buckets")
options.add_argument("--layers", type=int, default=4)
asked = options.parse_args()

device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
words, width = 8192, 512
blocks = [Block(width, width // 64) for _ in range(asked.layers)]
model = nn.Sequential(nn.Embedding(words, width), *blocks, nn.Linear(width, words)).to(device)
if asked.fsdp:
    for block in (*blocks, model):
        fully_shard(block)
else:
    model = DistributedDataParallel(model, device_ids=[device.index], bucket_cap_mb=asked.bucket_mb)
optimizer = torch.optim.AdamW(model.parameters(), 3e-4, fused=True)
for _ in range(4):
    tokens = torch.randint(words, (4, 513), device=device)
    with torch.autocast("cuda", torch.bfloat16):
        loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
