"""Training scripts as users write them, for the tests of `emu torchrun`. As text: torch may be absent."""

HEAD = """
import os, torch, torch.nn as nn, torch.distributed as dist
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.norm = nn.LayerNorm(width)
    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))
model = nn.Sequential(*[Block(64) for _ in range(4)]).to("cuda")
"""
TAIL = """
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
for step in range(4):
    loss = model(torch.randn(16, 64, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, loss.item())
dist.destroy_process_group()
"""
DDP = f"""{HEAD}
from torch.nn.parallel import DistributedDataParallel
model = DistributedDataParallel(model, device_ids=[int(os.environ["LOCAL_RANK"])], bucket_cap_mb=0.1)
{TAIL}"""
WIDE_DDP = DDP.replace("Block(64)", "Block(512)").replace("16, 64", "16, 512").replace("=0.1", "=4")
FSDP2 = f"""{HEAD}
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
mesh = init_device_mesh("cuda", (dist.get_world_size(),))
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
{TAIL}"""
HSDP = FSDP2.replace(
    "(dist.get_world_size(),))", '(dist.get_world_size() // 4, 4), mesh_dim_names=("replica", "shard"))'
)
TENSOR_PARALLEL = f"""{HEAD}
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
mesh = init_device_mesh("cuda", (dist.get_world_size() // 4, 4), mesh_dim_names=("dp", "tp"))
for block in model:
    parallelize_module(block, mesh["tp"], {{"up": ColwiseParallel(), "down": RowwiseParallel()}})
{TAIL}""".replace("1e-3)", "1e-3, foreach=False)")  # foreach takes DTensors or tensors, not both
ACCELERATOR = """
import os, torch, torch.nn as nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
if not (torch.accelerator.is_available() and torch.accelerator.device_count() >= 2):
    raise SystemExit("too few GPUs")
rank = int(os.environ["LOCAL_RANK"])
torch.accelerator.set_device_index(rank)
mesh = init_device_mesh(torch.accelerator.current_accelerator().type, (int(os.environ["WORLD_SIZE"]),))
with torch.device("meta"):
    model = nn.Sequential(*[nn.Linear(64, 64) for _ in range(4)])
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
model.to_empty(device=torch.device("cuda", rank))
for one in model:
    one.reset_parameters()
optimizer = torch.optim.Adam(model.parameters(), 1e-3)
for step in range(4):
    model(torch.randn(16, 64).to(rank)).sum().backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
"""
LLAMA = """
import torch, torch.nn as nn, torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
aten = torch.ops.aten
KEPT = (aten.mm.default, aten._scaled_dot_product_flash_attention.default)
def policy(ctx, op, *args, **kwargs):
    return CheckpointPolicy.MUST_SAVE if op in KEPT else CheckpointPolicy.PREFER_RECOMPUTE
class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.out = nn.RMSNorm(128), nn.Linear(128, 128, bias=False)
        self.qkv = nn.Linear(128, 256, bias=False)
    def part(self, x):
        q, k, v = self.qkv(self.norm(x)).split([128, 64, 64], -1)
        q, k, v = (one.unflatten(-1, (-1, 32)).transpose(1, 2) for one in (q, k, v))
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return x + self.out(seen.transpose(1, 2).flatten(-2))
    def forward(self, x):
        context = lambda: create_selective_checkpoint_contexts(policy)
        return checkpoint(self.part, x, use_reentrant=False, context_fn=context)
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.layers = nn.Embedding(16384, 128), nn.ModuleList([Layer() for _ in range(2)])
        self.head = nn.Linear(128, 16384, bias=False)
    def forward(self, ids):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)
mesh = init_device_mesh("cuda", (4,))
with torch.device("meta"):
    model = Model()
for one in (*model.layers, model):
    fully_shard(one, mesh=mesh, mp_policy=MixedPrecisionPolicy(torch.bfloat16, torch.float32))
model.to_empty(device="cuda")
for one in model.parameters():
    nn.init.trunc_normal_(one, std=0.02)
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
for _ in range(4):
    ids = torch.randint(16384, (2, 129)).cuda()
    loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1).float(), ids[:, 1:].flatten())
    loss.backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad()
    print(loss.item(), norm.item())
"""
"""As torchtitan's Llama: FSDP2 in bf16, checkpointing by operation, shards that come from meta."""
PIPELINE = """
import os, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
dist.init_process_group("nccl")
mesh = init_device_mesh("cuda", (4, dist.get_world_size() // 4), mesh_dim_names=("pp", "dp"))
stage, group = mesh["pp"].get_local_rank(), mesh["pp"].get_group()
part = nn.Sequential(*[nn.Linear(64, 64) for _ in range(2)]).cuda()
pipe = PipelineStage(part, stage, 4, torch.device("cuda"), group=group)
schedule = Schedule1F1B(pipe, 8, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(part.parameters(), 0.1)
said = ["nobody"]
if stage == 0:
    dist.recv_object_list(said, group_src=3, group=group)
elif stage == 3:
    dist.send_object_list(["the last"], group_dst=0, group=group)
dist.broadcast_object_list(said, group_src=0, group=group)
assert said == ["the last"]
for _ in range(4):
    x = torch.randn(32, 64, device="cuda")
    schedule.step(*([x] if stage == 0 else []), **({"target": x} if stage == 3 else {}))
    for one in part.parameters():
        dist.all_reduce(one.grad, group=mesh["dp"].get_group())
    optimizer.step()
    optimizer.zero_grad()
"""
EXPERTS = """
import os, torch, torch.nn as nn, torch.distributed as dist
from torch.distributed.nn.functional import all_to_all_single
dist.init_process_group("nccl")
torch.manual_seed(0)
places, width = dist.get_world_size(), 64
route, expert = nn.Linear(width, places).cuda(), nn.Linear(width, width).cuda()
optimizer = torch.optim.SGD([*route.parameters(), *expert.parameters()], 0.1)
for _ in range(4):
    tokens = torch.randn(256, width, device="cuda")
    chosen = route(tokens).argmax(-1)
    sent = torch.bincount(chosen, minlength=places)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sent, received = sent.tolist(), received.tolist()
    there = tokens.new_empty(sum(received), width)
    there = all_to_all_single(there, tokens[chosen.argsort()], received, sent)
    back = all_to_all_single(torch.empty_like(tokens), expert(there), sent, received)
    back.square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""
PARAMETERS = 4 * (64 * 256 + 256 + 256 * 64 + 64 + 2 * 64)
SMALL_GPT = """
import os, sys, torch, torch.nn as nn, torch.nn.functional as F, torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
device = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
torch.cuda.set_device(device)
dist.init_process_group("nccl")
torch.manual_seed(0)
class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
    def forward(self, x):
        b, t, c = x.shape
        q, k, v = self.qkv(self.norms[0](x)).view(b, t, 3, 2, c // 2).permute(2, 0, 3, 1, 4).unbind(0)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(b, t, c))
        return x + self.down(F.gelu(self.up(self.norms[1](x))))
block = Block(32)
model = nn.Sequential(nn.Embedding(32, 32), block, nn.Linear(32, 32)).to(device)
if "fsdp" in sys.argv:
    fully_shard(block)
    fully_shard(model)
else:
    model = DistributedDataParallel(model, device_ids=[device.index], bucket_cap_mb=0.02)
optimizer = torch.optim.SGD(model.parameters(), 0.3, momentum=0.9)
torch.manual_seed(1 + dist.get_rank())
for step in range(20):
    tokens = (torch.randint(32, (2, 1), device=device) + 3 * torch.arange(13, device=device)) % 32
    loss = F.cross_entropy(model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten())
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    print("step", step, loss.item())
dist.destroy_process_group()
"""
"""For live runs. SGD, because Adam divides by the size of a gradient: the bias of the keys has no effect, so
its gradient is rounding errors alone, and Adam makes steps of them that are as large as others."""
EVERY_CALL = """
import torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
dist.init_process_group("nccl")
r, n = dist.get_rank(), dist.get_world_size()
same = lambda one, other: one.cpu().equal(other) or exit(f"{one} is not {other}")
for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
    every = [(torch.arange(24) % 5 + k).to(dtype) for k in range(n)]
    whole, parts = sum(every), [one.chunk(n)[r] for one in every]
    x = every[r].cuda()
    y = x.clone(); dist.all_reduce(y); same(y, whole)
    y = x.clone(); dist.all_reduce(y, dist.ReduceOp.MAX); same(y, every[-1])
    y = x * n; dist.all_reduce(y, dist.ReduceOp.AVG); same(y, whole)
    y = torch.empty(24 * n, dtype=dtype, device="cuda")
    dist.all_gather_into_tensor(y, x); same(y, torch.cat(every))
    y = [torch.empty_like(x) for _ in range(n)]
    dist.all_gather(y, x); same(torch.cat(y), torch.cat(every))
    y = torch.empty(6, dtype=dtype, device="cuda")
    dist.reduce_scatter_tensor(y, x); same(y, whole.chunk(n)[r])
    y = x.clone(); dist.broadcast(y, 1); same(y, every[1])
    y = torch.empty_like(x); dist.all_to_all_single(y, x); same(y, torch.cat(parts))
    y = x.clone(); dist.reduce(y, 2); same(y, whole if r == 2 else every[r])
    y = [torch.empty_like(x) for _ in range(n)] if r == 3 else None
    dist.gather(x, y, 3); r != 3 or same(torch.cat(y), torch.cat(every))
    y = torch.empty(6, dtype=dtype, device="cuda")
    dist.scatter(y, list(x.chunk(n)) if r == 0 else None, 0); same(y, every[0].chunk(n)[r])
x = torch.cat([torch.full((r + k + 1, 2), 10.0 * r + k) for k in range(n)]).cuda()
y = torch.empty(sum(k + r + 1 for k in range(n)), 2, device="cuda")
dist.all_to_all_single(y, x, [k + r + 1 for k in range(n)], [r + k + 1 for k in range(n)])
same(y, torch.cat([torch.full((k + r + 1, 2), 10.0 * k + r) for k in range(n)]))
y = torch.empty(100, device="cuda")
mine = torch.full((100,), float(r), device="cuda")
sends = dist.P2POp(dist.isend, mine, (r + 1) % n), dist.P2POp(dist.irecv, y, (r - 1) % n)
for work in dist.batch_isend_irecv(list(sends)): work.wait()
same(y, torch.full((100,), float((r - 1) % n)))
work = dist.all_reduce(y, async_op=True)
assert not work.is_completed()
work.wait()
assert work.is_completed()
same(y, torch.full((100,), 6.0))
told = [None] * n
dist.all_gather_object(told, "x" * r); assert told == ["x" * k for k in range(n)]
told = [f"from {r}"]; dist.broadcast_object_list(told, 2); assert told == ["from 2"]
dist.barrier()
for dtype in (torch.float16, torch.float64, torch.int32, torch.int8, torch.bool):
    y = torch.full((3,), r + 1.0, device="cuda").to(dtype)
    dist.all_reduce(y, dist.ReduceOp.MIN); same(y, torch.ones(3, dtype=dtype))
mesh = init_device_mesh("cuda", (2, n // 2), mesh_dim_names=("a", "b"))
z = torch.tensor([float(r)], device="cuda"); dist.all_reduce(z, group=mesh["b"].get_group())
same(z, torch.tensor([1.0 if r < 2 else 5.0]))
c = torch.tensor([r]); dist.all_reduce(c); assert c.item() == 6  # of the CPU
r != 1 or dist.send(c + 1, 0)
r != 0 or dist.recv(c, 1) or same(c, torch.tensor([7]))
print("all as it should be")
"""
