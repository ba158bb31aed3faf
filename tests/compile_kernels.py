"""Compile kernels with products for an H100 or H200, which takes no GPU; fails if Triton does.

A process of its own, since Triton either compiles or interprets, for all of its life.
"""

import itertools
import sys

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from attendo.decoding import kernels
from attendo.nn.fast import attention, feedforward, rows, steps, top

TARGET = GPUTarget("cuda", 90, 32)


def kind(name: str, numbers: str) -> str:
    """Return Triton's type of an argument that `_launch` of attention passes."""
    if name.endswith("stride") or name in {"heads", "queries", "keys"}:
        return "i32"
    if name in {"cos", "sin"} or name.endswith("bias") or name.startswith("sum_"):
        return "*fp32"
    others = {"first": "*i32", "last": "*i32", "logs": "*fp32", "scale": "fp32"}
    return others.get(name, f"*{numbers}")


def compile_attention(kernel, numbers: str, **sizes) -> None:
    signature = {
        name: "constexpr" if name in sizes else kind(name, numbers) for name in kernel.arg_names
    }
    aligned = {
        (place,): [["tt.divisibility", 16]]
        for place, (name, type_) in enumerate(signature.items())
        if type_.startswith("*") or name.endswith("stride")
    }
    source = ASTSource(kernel, signature, sizes, aligned)
    is_large = sizes["T"] > 64 and (sizes["ROTATED"] or kernel is attention._forward)
    options = {"num_warps": 8 if is_large else 4}
    if kernel is attention._forward:
        options["maxnreg"] = 128
    triton.compile(source, TARGET, options)


def compile_feed_forward(*, squared: bool) -> None:
    rows, columns, depth = feedforward.ROWS, feedforward.COLUMNS, feedforward.DEPTH
    signature = {
        "grad": f"tensordesc<bf16[{rows}, {depth}]>",
        "weight": f"tensordesc<bf16[{depth}, {columns}]>",
        "hidden": f"tensordesc<bf16[{rows}, {columns}]>",
        "passed": f"tensordesc<bf16[{rows}, {columns}]>",
        "sums": "*fp32",
        "width": "i32",
        "d_model": "i32",
        **dict.fromkeys(("N", "C", "B", "STAGES", "SQUARED"), "constexpr"),
    }
    stages = feedforward.count_stages(768 if squared else 512)
    sizes = {"N": rows, "C": columns, "B": depth, "STAGES": stages, "SQUARED": squared}
    options = {"num_warps": feedforward.WARPS}
    triton.compile(ASTSource(feedforward._backward, signature, sizes), TARGET, options)
    print("feed-forward", sizes, file=sys.stderr)


FLOATS = (
    "scores",
    "found_scores",
    "shifts",
    "sums",
    "maxima",
    "shift",
    "marks",
    "eos_scores",
    "ended_scores",
)
FLAGS = ("is_open", "is_broken", "is_cut")
NUMBERS = (
    "n_beams", "length", "width", "vocabulary", "n_parts", "count", "forbidden", "forbidden_too",
    "marked", "eos", "bos", "max_loops", "n_each", "n_places", "n_chunks", "n_forced",
    "before", "row_size", "n_slots", "n_entries", "n_rows", "n_in", "n_out",
    "part_size", "size", "target_part_size", "target_size",
)  # fmt: skip
WHOLE = (
    "lengths", "origins", "memory_lengths", "only", "found", "last", "repeats", "limits",
    "prefixes", "starts", "n_ended", "ended_tokens", "ended_lengths", "chosen", "ranked",
    "places", "sources", "targets", "rows", "entries", "target_lengths", "number", "done_at",
    "queue", "n_added", "n_taken",
    "new_limits", "new_starts", "new_prefixes",
)  # fmt: skip
TYPES = {
    **dict.fromkeys(FLOATS, "*fp32"),
    **dict.fromkeys(FLAGS, "*i1"),
    **dict.fromkeys(NUMBERS, "i32"),
    **dict.fromkeys(WHOLE, "*i64"),
    **dict.fromkeys(("found_lengths", "kinds"), "*i32"),
    **dict.fromkeys(("scale", "epsilon", "factor"), "fp32"),
}


def compile_step(kernel, n_warps: int, **sizes) -> None:
    """Compile a kernel of a decoding step; all other arguments are tensors in bf16."""
    types = {name: TYPES.get(name, "*bf16") for name in kernel.arg_names}
    types |= dict.fromkeys(sizes, "constexpr")
    if "values" in types and kernel is not steps._copy_memory:
        # An offset in the attentions, a tensor elsewhere.
        types["values"] = "i32" if kernel in STEPS else "*fp32"
    if "tokens" in types:
        types["tokens"] = "*i64" if kernel.fn.__module__ == kernels.__name__ else "*i32"
    options = {"num_warps": n_warps, "launch_pdl": sizes.get("EARLY", False)}
    made = triton.compile(ASTSource(kernel, types, sizes), TARGET, options)
    print("step", kernel.fn.__name__, sizes, made.metadata.shared, file=sys.stderr)


STEPS = (steps._attend_to_past, steps._attend_to_memory)


def compile_steps() -> None:
    heads = {"H": 8, "K": 64}
    for flag in (False, True):
        kinds = {"IS_ALONE": flag, "ROTARY": flag, "NORMED": flag}
        compile_step(STEPS[0], steps.WARPS, **heads, C=steps.BLOCK, **kinds, EARLY=True)
    for is_normed in (False, True):
        sizes = {"C": steps.MEMORY_BLOCK, "G": steps.GROUP}
        compile_step(STEPS[1], steps.MEMORY_WARPS, **heads, **sizes, NORMED=is_normed, EARLY=True)
    for is_layer in (False, True):
        compile_step(rows._add_and_norm, 2, D=512, ADDS=True, IS_LAYER=is_layer, EARLY=True)
        flags = {"CARRIES": True, "CARRIES_NORM": is_layer, "HAS_BIAS": True, "RELU": is_layer}
        normed = {"ADDS": True, "NORMS": True, "IS_LAYER": is_layer, **flags, "EARLY": True}
        compile_step(rows._project_rows, 4, D=512, B=rows.BLOCK, P=1, **normed)
    plain = dict.fromkeys(("ADDS", "NORMS", "IS_LAYER", *flags), False)
    for width in (512, 2048):
        sizes = {"D": width, "B": rows.BLOCK, "P": rows.count_parts(width)}
        compile_step(rows._project_rows, rows.count_warps(width), **sizes, **plain, EARLY=True)
    compile_step(steps._copy_memory, 4, C=steps.COPIED)
    compile_step(steps._move_past, 4, C=steps.COPIED)
    compile_step(steps._embed, 2, D=512, ADDS=True, EARLY=True)
    for kept in (1, 8):
        compile_step(top._reduce, 8, S=top.COLUMNS // top.CHUNK, C=top.CHUNK, EARLY=True)
        sizes = {"P": 8, "M": 512, "K": kept, "C": top.CHUNK}
        compile_step(top._rank, 1, **sizes, IS_NORMAL=kept == 1, EARLY=True)
    loops = {"LONGEST": kernels.LONGEST_LOOP, "L": kernels.DISTANCES}
    compile_step(kernels._add, 1, C=kernels.COLUMNS)
    compile_step(kernels._follow, 1, **loops, EARLY=True)
    for is_beam in (False, True):
        sizes = {"N": 4 if is_beam else 1, "C": kernels.COLUMNS, "IS_BEAM": is_beam}
        compile_step(kernels._exchange, 1, **loops, **sizes, EARLY=True)
    compile_step(kernels._branch, 4, **loops, N=4, K=8, C=kernels.COLUMNS, EARLY=True)


if __name__ == "__main__":
    attentions = attention._forward, attention._backward
    for kernel, (numbers, length), is_rotated in itertools.product(
        attentions, (("fp32", 64), ("bf16", 128)), (False, True)
    ):
        sizes = {"T": length, "S": length, "K": 64, "ROTATED": is_rotated}
        if kernel is attention._backward:
            sizes["P"] = length if is_rotated else attention.PART
        compile_attention(kernel, numbers, **sizes)
        print(kernel.fn.__name__, numbers, sizes, file=sys.stderr)
    compile_feed_forward(squared=False)
    compile_feed_forward(squared=True)
    compile_steps()
