"""Reversible residual layers: hidden states are recomputed backwards instead of being stored.

Gomez et al. 2017; Reformer, Kitaev et al. 2020, §3. The hidden states are two halves: a function
of one half is added to the other, which can be recomputed and subtracted. So only the last state of
the halves is kept for the backward pass, whatever the depth.

Every function runs twice and must do the same both times. Torch's own random numbers (of the CPU
and of the GPU in use) are drawn again, and autocast is restored. Functions that draw elsewhere,
count their calls or collect statistics are not for this, nor may they be changed in between, as
from training to evaluation.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.autograd.graph import get_gradient_edge
from torch.func import functional_call

from attendo.nn.numerics import widen

Half = Float[Tensor, "..."]


class Function(NamedTuple):
    """What is added to one half, given the other and the shared tensors."""

    modules: Sequence[nn.Module]
    """Those whose parameters it reads."""
    call: Callable[..., Tensor]


@torch.compiler.disable
def reversible(
    functions: Sequence[Function], a: Half, b: Half, *shared: Tensor
) -> tuple[Half, Half]:
    """Add the first function of b to a, the second one of a to b, and so on; returns a and b.

    Each function is called with a half and the shared tensors. Tensors with gradients that it
    reads must be parameters of its modules, or shared.
    """
    # In half precision too much would get lost between addition and subtraction.
    halves = [widen(x) for x in (a, b)]
    steps = [_Step(function, (b, a)[i % 2].dtype) for i, function in enumerate(functions)]
    if steps and torch.is_grad_enabled():
        parameters: dict[nn.Parameter, int] = {}
        for step in steps:
            step.number(parameters)
        halves = _Chain.apply(steps, len(shared), *halves, *shared, *parameters)
    else:
        for i, step in enumerate(steps):
            halves[i % 2] = _sum(halves[i % 2], step(halves[1 - i % 2], *shared))
    return halves[0].to(a.dtype), halves[1].to(b.dtype)


def _sum(half: Half, added: Tensor) -> Half:
    if added.shape != half.shape:
        raise ValueError(
            f"a function gave {tuple(added.shape)}, to be added to "
            f"{tuple(half.shape)}: the shapes must be the same"
        )
    return half + added


class _Step(nn.Module):
    """A function, with the parameters that it reads."""

    def __init__(self, function: Function, dtype: torch.dtype) -> None:
        super().__init__()
        self.function, self.dtype = function.call, dtype
        self.read = nn.ModuleList(function.modules)
        self.places: dict[str, int] = {}
        """Indices of its parameters among those of all steps."""

    def number(self, parameters: dict[nn.Parameter, int]) -> None:
        """Assign an index to each learned parameter that has none yet."""
        for prefix, module in self.named_modules():
            for name, parameter in module.named_parameters(recurse=False, remove_duplicate=False):
                if parameter.requires_grad:
                    place = parameters.setdefault(parameter, len(parameters))
                    self.places[f"{prefix}.{name}"] = place

    def forward(self, half: Half, *shared: Tensor) -> Tensor:
        """Compute what to add."""
        return self.function(half.to(self.dtype), *shared)

    def run(self, half: Half, shared: Sequence[Tensor], parameters: Sequence[Tensor]) -> "_Run":
        """Compute it with a graph of its own, which ends at copies of all that is read.

        So gradients are passed on, and hooks called, once in the end and not here. Forwards the
        graph is thrown away; but without one a function might choose another way to compute.
        """
        own = [parameters[place] for place in self.places.values()]
        leaves = [x.detach().requires_grad_(x.requires_grad) for x in (half, *shared, *own)]
        leaves[0].requires_grad_()
        given, copies = leaves[: 1 + len(shared)], leaves[1 + len(shared) :]
        with torch.enable_grad():
            named = dict(zip(self.places, copies, strict=True))
            # With tie_weights, it would leave the copies in a module that has two names.
            added: Tensor = functional_call(self, named, tuple(given), tie_weights=False)
        return _Run(leaves, added)


class _Run(NamedTuple):
    leaves: list[Tensor]
    """The half, the shared tensors, the parameters."""
    added: Tensor

    def gradients(self, slope: Tensor | None) -> list[Tensor | None]:
        """Find the gradients of the leaves, given that of what was added."""
        found: list[Tensor | None] = [None] * len(self.leaves)
        if slope is not None and self.added.requires_grad:
            places = [i for i, leaf in enumerate(self.leaves) if leaf.requires_grad]
            learners = [self.leaves[i] for i in places]
            slopes = torch.autograd.grad(
                self.added, learners, slope.to(self.added.dtype), allow_unused=True
            )
            for i, gradient in zip(places, slopes, strict=True):
                found[i] = gradient
        return found

    def check(self) -> None:
        """Raise an error if a function reads a tensor that would get no gradient."""
        known = set(map(id, self.leaves))
        nodes = [get_gradient_edge(self.added).node] if self.added.requires_grad else []
        visited = set(nodes)
        while nodes:
            node = nodes.pop()
            variable = getattr(node, "variable", None)
            if variable is not None and id(variable) not in known:
                raise ValueError(
                    f"a function reads a tensor of shape {tuple(variable.shape)}, or one that was "
                    "computed from it, and would give it no gradient: pass what it reads as a "
                    "shared tensor, or name the module that it belongs to"
                )
            before = {follower for follower, _ in node.next_functions if follower} - visited
            visited |= before
            nodes.extend(before)


class _Surroundings(NamedTuple):
    """What a function's result depends on besides its inputs."""

    device: torch.device
    precision: torch.dtype | None
    """That of autocast, if it is on."""
    states: list[Tensor]
    """Of the random numbers of the CPU and of another device, if in use."""

    @classmethod
    def now(cls, device: torch.device) -> "_Surroundings":
        is_on = torch.is_autocast_enabled(device.type)
        states = [torch.get_rng_state()]
        if device.type != "cpu":
            states.append(torch.get_device_module(device).get_rng_state(device))
        return cls(device, torch.get_autocast_dtype(device.type) if is_on else None, states)

    def autocast(self) -> torch.autocast:
        """Return the same autocast, without a cache: each copy of a parameter is used once."""
        return torch.autocast(
            self.device.type, self.precision, self.precision is not None, cache_enabled=False
        )

    @contextmanager
    def again(self) -> Iterator[None]:
        """Restore random numbers and precision of the first run inside the context."""
        others = [] if self.device.type == "cpu" else [self.device]
        with ExitStack() as stack:
            kind = self.device.type if others else "cuda"  # of no devices, it must still be one
            stack.enter_context(torch.random.fork_rng(others, device_type=kind))
            torch.set_rng_state(self.states[0])
            for device in others:
                torch.get_device_module(device).set_rng_state(self.states[1], device)
            stack.enter_context(self.autocast())
            yield


class _Chain(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, steps: list[_Step], n_shared: int, a: Half, b: Half, *read: Tensor
    ) -> tuple[Half, ...]:
        ctx.steps, ctx.n_shared, ctx.surroundings = steps, n_shared, []
        halves = [a, b]
        for i, step in enumerate(steps):
            surroundings = _Surroundings.now(a.device)
            with surroundings.autocast():
                run = step.run(halves[1 - i % 2], read[:n_shared], read[n_shared:])
            run.check()
            halves[i % 2] = _sum(halves[i % 2], run.added.detach())
            ctx.surroundings.append(surroundings)
        # Parameters, too, so that a change before the backward pass is noticed.
        ctx.save_for_backward(*halves, *read)
        return tuple(halves)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *slopes_of_both: Tensor) -> tuple[Tensor | None, ...]:
        a, b, *read = ctx.saved_tensors
        halves, slopes = [a, b], list[Tensor | None](slopes_of_both)
        totals: list[Tensor | None] = [None] * len(read)
        for i, step in reversed(list(enumerate(ctx.steps))):
            target, source = i % 2, 1 - i % 2
            with ctx.surroundings[i].again():
                run = step.run(halves[source], read[: ctx.n_shared], read[ctx.n_shared :])
            halves[target] = halves[target] - run.added.detach()
            slope, *others = run.gradients(slopes[target])
            slopes[source] = _total(slopes[source], slope)
            places = (ctx.n_shared + place for place in step.places.values())
            for place, other in zip((*range(ctx.n_shared), *places), others, strict=True):
                totals[place] = _total(totals[place], other)
        return None, None, *slopes, *totals


def _total(left: Tensor | None, right: Tensor | None) -> Tensor | None:
    if left is None or right is None:
        return right if left is None else left
    return left + right
