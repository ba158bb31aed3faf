"""Streams that are computed again backwards: the same as if everything had been stored."""

import operator
import weakref
from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks

from attendo.nn.fast import reversible as module
from attendo.nn.fast.reversible import Function
from attendo.nn.numerics import Dropout

ROWS, TOKENS, WIDTH, SOURCE = 2, 5, 6, 7
Functions = list[Callable[..., Tensor]]


def reversible(functions: Functions, *tensors: Tensor) -> tuple[Tensor, Tensor]:
    """Name the parameters that each function reads."""

    def named(function: Callable[..., Tensor]) -> Function:
        if isinstance(function, Function):
            return function
        return Function((function,) if isinstance(function, nn.Module) else (), function)

    return module.reversible([named(function) for function in functions], *tensors)


def plain(functions: Functions, a: Tensor, b: Tensor, *shared: Tensor) -> tuple[Tensor, Tensor]:
    """The same, stored as usual."""
    streams = [a, b]
    for i, function in enumerate(functions):
        streams[i % 2] = streams[i % 2] + _call(function)(streams[1 - i % 2], *shared)
    return streams[0], streams[1]


def _call(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return function.call if isinstance(function, Function) else function


def network(p_drop: float = 0.0, dtype: torch.dtype = torch.float64) -> nn.Module:
    return nn.Sequential(
        nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 11), nn.Tanh(), nn.Dropout(p_drop),
        nn.Linear(11, WIDTH), Dropout(p_drop),
    ).to(dtype)  # fmt: skip


class Asking(nn.Module):
    """Reads the shared tensors: a memory, and which of it may be read."""

    def __init__(self) -> None:
        super().__init__()
        self.key = nn.Linear(WIDTH, WIDTH, dtype=torch.float64)

    def forward(self, x: Tensor, memory: Tensor, mask: Tensor) -> Tensor:
        scores = (x @ self.key(memory).mT).masked_fill(~mask, -torch.inf)
        return scores.softmax(dim=-1) @ memory


def streams(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    a, b = torch.randn(2, ROWS, TOKENS, WIDTH, dtype=dtype).unbind()
    return a.clone().requires_grad_(), b.clone().requires_grad_()


def parameters_of(functions: Functions) -> list[Tensor]:
    modules = nn.ModuleList(f for f in functions if isinstance(f, nn.Module))
    return list(modules.parameters())


def outcome(run: Callable, functions: Functions, *inputs: Tensor) -> list[Tensor | None]:
    """Results, and the gradients of all that can have one, of a run from the same seed."""
    torch.manual_seed(5)
    results = run(functions, *inputs)
    after = torch.rand(3)
    learners = [x for x in (*inputs, *parameters_of(functions)) if x.requires_grad]
    for x in learners:
        x.grad = None
    (results[0].sin() + 2 * results[1].square()).sum().backward()
    return [*(x.detach() for x in results), after, *(x.grad for x in learners)]


def assert_same(functions: Functions, *inputs: Tensor, **tolerance: float) -> None:
    ours, expected = (outcome(run, functions, *inputs) for run in (reversible, plain))
    for left, right in zip(ours, expected, strict=True):
        if right is None:
            assert left is None
        else:
            torch.testing.assert_close(left, right, **tolerance)


@pytest.mark.parametrize("n", [0, 1, 2, 3, 8])
def test_values_and_gradients_are_those_of_the_plain_computation(n):
    assert_same([network() for _ in range(n)], *streams())


def test_dropout_drops_the_same_again():
    functions = [network(0.4) for _ in range(5)]
    assert_same(functions, *streams())
    first, second = (reversible(functions, *streams())[0] for _ in range(2))
    assert not torch.equal(first, second)


def test_the_backward_pass_leaves_the_random_numbers_alone():
    functions, inputs = [network(0.4) for _ in range(2)], streams()
    results = reversible(functions, *inputs)
    state = torch.get_rng_state()
    sum(results).sum().backward()
    assert torch.equal(torch.get_rng_state(), state)


def test_shared_tensors_get_the_gradients_of_all_functions():
    memory = torch.randn(ROWS, SOURCE, WIDTH, dtype=torch.float64, requires_grad=True)
    mask = torch.rand(ROWS, 1, SOURCE) < 0.7
    mask[..., 0] = True
    assert_same([Asking() for _ in range(3)], *streams(), memory, mask)
    hidden = memory.tanh()  # not a leaf: an encoder's result
    (slope,) = torch.autograd.grad(sum(plain([Asking()], *streams(), hidden, mask)).sum(), memory)
    assert slope.any()


def test_gradients_go_through_shared_tensors_to_what_they_came_from():
    source = torch.randn(ROWS, SOURCE, WIDTH, dtype=torch.float64, requires_grad=True)
    mask, functions, inputs = torch.ones(1, SOURCE).bool(), [Asking(), Asking()], streams()
    slopes = [
        torch.autograd.grad(run(functions, *inputs, source.tanh(), mask)[1].sum(), source)[0]
        for run in (reversible, plain)
    ]
    torch.testing.assert_close(*slopes)


def test_autocast_is_restored():
    functions = [network(0.2, torch.float32) for _ in range(4)]

    def mixed(run: Callable, *arguments: object) -> tuple[Tensor, Tensor]:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return run(*arguments)

    ours, expected = (
        outcome(partial(mixed, run), functions, *inputs)
        for run in (reversible, plain)
        for inputs in [streams_of_seed(torch.float32)]
    )
    full = outcome(plain, functions, *streams_of_seed(torch.float32))
    assert (full[0] - expected[0]).abs().max() > 1e-3, "bf16 is seen in the results"
    for left, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=1e-4, atol=1e-5)


def streams_of_seed(dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    torch.manual_seed(7)
    return streams(dtype)


def test_without_autocast_forwards_there_is_none_backwards():
    functions, inputs = [network(dtype=torch.float32) for _ in range(2)], streams(torch.float32)
    parameters = parameters_of(functions)
    expected = torch.autograd.grad(sum(plain(functions, *inputs)).sum(), parameters)
    total = sum(reversible(functions, *inputs)).sum()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        ours = torch.autograd.grad(total, parameters)
    # The products of the backward pass itself are in bf16 here, as they would be without us.
    for left, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(left, right, rtol=0.02, atol=0.05)


def test_under_autocast_weights_can_be_used_again_outside():
    layer, inputs = nn.Linear(WIDTH, WIDTH), streams(torch.float32)
    slopes = []
    for run in (reversible, plain):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            a, b = run([layer], *inputs)
            total = layer(a + b).float().sum()
        slopes.append(torch.autograd.grad(total, layer.weight)[0])
    torch.testing.assert_close(*slopes, rtol=0.02, atol=0.05)


def test_half_precision_streams_are_recovered_all_the_same():
    functions = [network(dtype=torch.bfloat16) for _ in range(12)]
    a, b = (x.detach().bfloat16().requires_grad_() for x in streams())
    results = reversible(functions, a, b)
    assert {x.dtype for x in results} == {torch.bfloat16}
    ours = torch.autograd.grad(sum(results).sum(), (a, b))
    wide = [x.detach().float().requires_grad_() for x in (a, b)]
    casting = [lambda x, f=f: f(x.bfloat16()).float() for f in functions]
    expected = torch.autograd.grad(sum(plain(casting, *wide)).sum(), wide)
    for left, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(left.float(), right, rtol=0.02, atol=0.02)


def kept_bytes(run: Callable, functions: Functions) -> int:
    """Count what is kept for the backward pass besides parameters and inputs, once it is built."""

    class Kept:
        def __init__(self, x: Tensor) -> None:
            self.x = x.detach()  # or an operation's own result would keep the operation alive

    inputs = streams()
    given = {x.data_ptr() for x in (*inputs, *parameters_of(functions))}
    alive: weakref.WeakSet[Kept] = weakref.WeakSet()

    def pack(x: Tensor) -> Kept:
        kept = Kept(x)
        alive.add(kept)
        return kept

    with saved_tensors_hooks(pack, lambda kept: kept.x):
        results = run(functions, *inputs)
    assert results[0].requires_grad
    storages = {kept.x.untyped_storage().data_ptr(): kept.x for kept in alive}
    return sum(x.untyped_storage().nbytes() for at, x in storages.items() if at not in given)


def test_what_is_kept_does_not_grow_with_the_depth():
    shallow, deep = ([network() for _ in range(n)] for n in (2, 20))
    both_streams = 2 * ROWS * TOKENS * WIDTH * 8
    assert kept_bytes(reversible, shallow) == kept_bytes(reversible, deep) == both_streams
    assert kept_bytes(plain, deep) > 9 * kept_bytes(plain, shallow)


def test_functions_may_share_parameters():
    layer, first, twin = network(0.3), *(nn.Linear(WIDTH, WIDTH).double() for _ in range(2))
    twin.weight = first.weight
    before = list(first.parameters())
    functions = [layer, first, layer, nn.Sequential(first, nn.Tanh(), twin, first), twin]
    assert_same(functions, *streams())
    assert all(map(operator.is_, first.parameters(), before)), "they are the module's again"


def test_it_can_be_used_twice_in_one_graph():
    functions = [network() for _ in range(3)]

    def twice(run: Callable, functions: Functions, *inputs: Tensor) -> tuple[Tensor, Tensor]:
        a, b = run(functions, *inputs)
        return run(functions, b.tanh(), a + b)

    inputs = streams()
    ours, expected = (
        outcome(partial(twice, run), functions, *inputs) for run in (reversible, plain)
    )
    for left, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(left, right)


def test_one_tensor_can_be_both_streams():
    a, _ = streams()
    functions = [network(), network()]
    slopes = [
        torch.autograd.grad(sum(run(functions, a, a)).square().sum(), a)[0]
        for run in (reversible, plain)
    ]
    torch.testing.assert_close(*slopes)


@pytest.mark.parametrize("frozen", ["a", "b", "both", "parameters", "memory"])
def test_only_some_may_learn(frozen):
    functions = [Asking(), Asking(), Asking()]
    a, b = streams()
    memory = torch.randn(ROWS, SOURCE, WIDTH, dtype=torch.float64)
    memory.requires_grad_(frozen != "memory")
    a.requires_grad_(frozen not in ("a", "both"))
    b.requires_grad_(frozen not in ("b", "both"))
    if frozen == "parameters":
        functions[0].requires_grad_(False)
        functions[1].key.bias.requires_grad_(False)
    assert_same(functions, a, b, memory, torch.ones(1, SOURCE).bool())


def test_a_result_may_stay_unused():
    functions, inputs = [network() for _ in range(3)], streams()
    for which in (0, 1):
        ours, expected = (
            torch.autograd.grad(run(functions, *inputs)[which].sum(), inputs)
            for run in (reversible, plain)
        )
        for left, right in zip(ours, expected, strict=True):
            torch.testing.assert_close(left, right)


def test_hooks_are_called_once_with_the_whole_gradient():
    layer, calls = network(), []
    weight = layer[1].weight
    weight.register_hook(lambda gradient: (calls.append(1), 2 * gradient)[1])
    assert_same([layer, network(), layer], *streams())
    assert len(calls) == 2, "once in either computation"


def test_the_graph_can_be_kept():
    functions, inputs = [network(0.3) for _ in range(4)], streams()
    total = sum(reversible(functions, *inputs)).sum()
    first = torch.autograd.grad(total, inputs, retain_graph=True)
    again = torch.autograd.grad(total, inputs)
    assert all(map(torch.equal, first, again))


def test_a_function_names_the_modules_that_it_uses():
    layer, other, memory_mask = network(), Asking(), torch.ones(1, SOURCE).bool()
    settings = {"layers": [layer]}
    memory = torch.randn(ROWS, SOURCE, WIDTH, dtype=torch.float64, requires_grad=True)

    def scaled(x: Tensor, memory: Tensor, *, scale: float) -> Tensor:
        return scale * settings["layers"][0](x)

    functions = [
        Function([other], lambda x, memory: other(x, memory, memory_mask)),
        Function([other, layer], partial(other.forward, mask=memory_mask)),
        Function([layer], partial(scaled, scale=0.5)),
        Function([], lambda x, memory: x.tanh()),
    ]
    learners = [memory, *layer.parameters(), *other.parameters()]
    inputs = streams()
    ours, expected = (
        torch.autograd.grad(run(functions, *inputs, memory)[1].square().sum(), learners)
        for run in (reversible, plain)
    )
    for left, right in zip(ours, expected, strict=True):
        torch.testing.assert_close(left, right)


weight_of_nobody = torch.ones(WIDTH, dtype=torch.float64, requires_grad=True)


@pytest.mark.parametrize("computed", [False, True])
def test_what_would_get_no_gradient_is_refused(computed):
    hidden = weight_of_nobody.exp() if computed else weight_of_nobody
    for function in (lambda x: x * hidden, lambda x: hidden.expand_as(x)):
        with pytest.raises(ValueError, match=r"shape \(6,\).*shared tensor"):
            reversible([network(), function], *streams())
    with torch.no_grad():
        reversible([lambda x: x * hidden], *streams())


def test_a_shape_that_would_widen_a_half_is_refused():
    for run in (torch.no_grad()(reversible), reversible):
        with pytest.raises(ValueError, match=r"gave \(2, 5, 1\).*added to \(2, 5, 6\)"):
            run([lambda x: x[..., :1]], *streams())


def test_what_was_changed_before_the_backward_pass_is_noticed():
    layer = network()
    for changed in (layer[1].weight, None):
        results = reversible([layer, network()], *streams())
        with torch.no_grad():
            (results[0] if changed is None else changed).add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            sum(results).sum().backward()


def test_a_function_may_not_change_its_stream():
    with pytest.raises(RuntimeError, match="in-place"):
        reversible([nn.ReLU(inplace=True)], *streams())


def test_gradients_of_gradients_are_refused():
    a, b = streams()
    total = sum(reversible([network()], a, b)).square().sum()
    (slope,) = torch.autograd.grad(total, a, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        slope.sum().backward()


def test_without_gradients_it_just_runs():
    functions, inputs = [network() for _ in range(3)], streams()
    expected = plain(functions, *inputs)
    for mode in (torch.no_grad, torch.inference_mode):
        with mode():
            results = reversible(functions, *inputs)
        for left, right in zip(results, expected, strict=True):
            assert not left.requires_grad
            assert torch.equal(left, right)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_on_a_gpu_dropout_drops_the_same_again():
    functions = [network(0.4).cuda() for _ in range(5)]
    a, b = (x.detach().cuda().requires_grad_() for x in streams())
    assert_same(functions, a, b)
