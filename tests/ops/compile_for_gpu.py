"""Compile every kernel for a GPU that is not there: host code runs on CPU tensors, and a launch only compiles.

The interpreter takes what the compiler does not: a name of two types in a loop, a mask of the wrong shape. Started by
test_compile_for_gpu.py in a process of its own, where Triton is not the interpreter.
"""

import inspect

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from selfnorm import ops
from selfnorm.criteria import CRITERIA
from selfnorm.noise import LogUniform
from selfnorm.ops import draws, fused, halves, updates
from selfnorm.ops.columns import LOG_SIGMOIDS
from selfnorm.optim import RowAdagrad, RowAdam, RowSGD
from selfnorm.output import Layer
from selfnorm.samplers import SAMPLERS

HOPPER = GPUTarget("cuda", 90, 32)
KINDS = {torch.float32: "fp32", torch.float64: "fp64", torch.bfloat16: "bf16", torch.int32: "i32", torch.int64: "i64"}
C, H, N = 1000, 512, 64
seen = set()


def compile_only(self, *args, grid=None, warmup=None, **options):
    chosen = {name: options.pop(name) for name in ("num_warps", "num_stages") if name in options}
    bound = inspect.signature(self.fn).bind(*args, **options)
    signature, constants, attributes = {}, {}, {}
    for number, (name, value) in enumerate(bound.arguments.items()):
        if self.params[number].is_constexpr:
            signature[name], constants[(number,)] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], attributes[(number,)] = f"*{KINDS[value.dtype]}", [["tt.divisibility", 16]]
        else:
            signature[name] = "fp32" if isinstance(value, float) else "i32"
    key = self.__name__, tuple(signature.items()), tuple(constants.items())
    if key not in seen:
        seen.add(key)
        triton.compile(ASTSource(self, signature, constants, attributes), target=HOPPER, options=chosen or None)


def step(name, optimizer, groups, k, **options):
    weight, bias = (torch.nn.Parameter(torch.randn(shape)) for shape in ((C, H), (C,)))
    criterion, rows = CRITERIA[name](), optimizer([weight, bias], half=True)
    hidden, targets = torch.randn(N, H, dtype=torch.bfloat16).requires_grad_(), torch.randint(0, C, (N,))
    sampler = SAMPLERS[criterion.sampler](noise=LogUniform(C), k=k, groups=groups, **options)
    sample = sampler.draw(targets) if criterion.sampled else None
    criterion.loss(hidden, Layer(weight, bias, criterion.sampled, "fused"), targets, sample).mean().backward()
    numbers = updates.Scalars(*(torch.ones(()) for _ in range(4)))
    for table in (weight, bias) if criterion.sampled else ():
        touched = updates.FusedRows(list(ops.expect(table)))
        touched.square()
        touched.dense(table)
        touched.update(table, rows._moments(table), rows.rule, numbers)


JITFunction.run = compile_only
ops._is_fused = lambda *_: True
step("mode3", RowAdam, 1, 64)
step("nce", RowAdagrad, 1, 70)
step("linear", RowSGD, 2, 64)
step("sampled_softmax", RowSGD, 1, 64)
step("mode2", RowSGD, 1, 64)
step("mode2", RowAdam, 1, 10, sharing="position")
step("bce", RowSGD, 1, 64)
fused.log_z(torch.randn(N, H, dtype=torch.bfloat16), torch.randn(C, H), None, LOG_SIGMOIDS)
draws.systematic(torch.rand(1, 1).double(), torch.arange(5), torch.ones(3).double(), 2, 10, 100, 0.999)
halves.fused(
    *(torch.zeros(5000, dtype=each) for each in (torch.float32, torch.bfloat16, torch.float32, torch.float32)),
    torch.zeros(5000, dtype=torch.bfloat16),
    updates.Rule(updates.ADAM, 1e-8, 0.9, 0.999),
    updates.Scalars(*(torch.ones(()) for _ in range(4))),
)
for length in (5, 20, 64):
    three = torch.randn(2, length, 3, 2, 64, dtype=torch.bfloat16).requires_grad_()
    ops.short_attention(three).sum().backward()
print(*sorted({name for name, *_ in seen}))
