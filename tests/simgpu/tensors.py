"""Tensors that say they are on a GPU and hold a CPU tensor: an operator that meets one runs on what
they hold, is counted, and raises where CUDA would.

No mode is entered, so that other threads, autograd's among them, see the device too: factories
(`device="cuda"`) reach kernels that `register` puts at the backend's dispatch key.
"""

import contextlib
import functools
import math
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F

aten = torch.ops.aten
gpu: Any = None
"""The device that is in use."""

# Operators without a kernel, beside views.
_FREE = """empty empty_like empty_strided new_empty new_empty_strided _unsafe_view detach alias
    lift_fresh set_ _reshape_alias is_same_size _local_scalar_dense""".split()
# Kernels of an operator where it is not one, by CUDA's sources for sizes of a language model.
_KERNELS = {"sort": 6, "topk": 4, "nonzero": 3, "_unique2": 8, "embedding_dense_backward": 5}
_KERNELS |= {"native_layer_norm_backward": 2}
_AT_INDICES = "index index_put index_put_ _index_put_impl_ _unsafe_index".split()
# They take a CPU tensor without dimensions as a number, as pointwise ones do.
_TAKE_NUMBERS = "where fill_ masked_fill masked_fill_ index_put_ index_put".split()
_FACTORIES = """empty.memory_format empty_strided arange arange.start arange.start_step linspace eye
    eye.m randperm tril_indices triu_indices""".split()


class SimTensor(torch.Tensor):
    """A tensor on the simulated device: `inner` is the CPU tensor that has its numbers, `block` the
    device's memory, which it shares with its views."""

    @staticmethod
    def __new__(cls, inner, device, block):
        strides, offset = inner.stride(), inner.storage_offset()
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides, offset, dtype=inner.dtype, device=device
        )
        made.inner, made.block = inner, block
        return made

    def __tensor_flatten__(self):  # by it nn.Module.to() keeps a parameter's identity, as on CUDA
        return ["inner"], self.device

    @staticmethod
    def __tensor_unflatten__(inner, device, size, stride):
        return gpu.hold(inner["inner"], device)

    def __deepcopy__(self, memo):
        if id(self) not in memo:
            with torch.no_grad():
                memo[id(self)] = made = self.detach().clone().requires_grad_(self.requires_grad)
            if isinstance(self, torch.nn.Parameter):
                made._is_param = True
        return memo[id(self)]

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        if func in (torch.Tensor.data_ptr, torch.Tensor.untyped_storage):
            return func(args[0].inner)
        if func is torch.Tensor.numpy:
            gpu.fault("numpy")
            raise TypeError(f"can't convert {args[0].device} device type tensor to numpy")
        if func is torch.Tensor.tolist:
            return args[0].detach().cpu().tolist()
        with torch._C.DisableTorchFunctionSubclass():
            result = func(*args, **kwargs or {})  # `data` takes no CPU tensor here, as CUDA does
        if func == torch.Tensor.data.__set__ and isinstance(args[0], SimTensor):
            args[0].inner, args[0].block = args[1].inner, args[1].block
        return result

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func is aten.scaled_dot_product_attention.default:
            return attention(*args, **kwargs)
        if _is_composite(func):  # in inference mode they come whole
            return func.decompose(*args, **kwargs)
        by_name = {"copy_": _copy_, "_to_copy": _to_copy}
        return by_name.get(_name(func), partial(_run, func))(*args, **kwargs)


@functools.cache
def _is_composite(func):
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    return has_kernel(func.name(), "CompositeImplicitAutograd")


@functools.cache
def _name(func):
    return func._schema.name.partition("::")[2]


def _map(values, kind, change):
    """A copy of nested lists, tuples and dicts with the tensors of this kind changed."""
    if isinstance(values, kind):
        return change(values)
    if type(values) is dict:
        return {key: _map(value, kind, change) for key, value in values.items()}
    if type(values) in (list, tuple):
        return type(values)([_map(value, kind, change) for value in values])
    return values


def _inner(values):
    return _map(values, SimTensor, lambda t: t.inner)


def leaves(values):
    """The tensors in nested lists, tuples and dicts."""
    found = []
    _map(values, torch.Tensor, found.append)
    return found


# -- an operator -----------------------------------------------------------------------------------


def _run(func, *args, **kwargs):
    name, (names, writes, returns) = _name(func), _signature(func)
    device = torch.device(kwargs.get("device") or _device(func, args, kwargs))
    given = dict(zip(names, args, strict=False)) | kwargs if writes else {}
    written = [given[key] for key in writes if given.get(key) is not None]
    inner, options = _inner(args), {k: v for k, v in _inner(kwargs).items() if k != "pin_memory"}
    if "device" in options:
        options["device"] = "cpu"
    changed = leaves(_inner(written))
    shapes = [t.shape for t in changed]
    gpu.count(name, kernels(func, args), waits=_waits(func, args))
    call = partial(_compute, func, *inner, **options)
    result = gpu.execute(call, changed, recorded=not (func.is_view or name in _FREE))
    if torch.Tag.inplace_view in func.tags or shapes != [t.shape for t in changed]:
        raise NotImplementedError(f"{func} changes the shape of a SimTensor in place")
    if written and any(returns):
        return written[0] if len(returns) == 1 else tuple(written)
    if device.type == "cpu":
        return result
    # A view of a normal tensor stays normal in inference mode.
    stays = func.is_view and torch.is_inference_mode_enabled() and not args[0].is_inference()
    with torch.inference_mode(False) if stays else contextlib.nullcontext():
        return _map(result, torch.Tensor, lambda t: gpu.hold(t, device))


@functools.cache
def _signature(func):
    """An operator's arguments, those that it writes to, and whether it returns each of these."""
    arguments = func._schema.arguments
    writes = [a.name for a in arguments if a.alias_info is not None and a.alias_info.is_write]
    returns = [each.alias_info is not None for each in func._schema.returns]
    return [a.name for a in arguments], writes, returns


def _compute(func, *args, out=None, **options):
    """The result on the CPU, which lacks two things that CUDA has."""
    name = _name(func)
    if name == "histc" and not args[0].is_floating_point():
        return func(args[0].double(), *args[1:], **options).to(args[0].dtype)
    if func._overloadname.startswith("dtype") and name in ("mm", "bmm", "addmm", "baddbmm"):
        count = 2 if name in ("mm", "bmm") else 3
        new = getattr(torch, name)(*(t.to(args[count]) for t in args[:count]), **options)
        return new if out is None else out.copy_(new)
    return func(*args, **options, **({} if out is None else {"out": out}))


def _device(func, args, kwargs):
    """Where an operator runs; RuntimeError where CUDA raises."""
    name, given = _name(func), leaves((args, kwargs))
    here = {t.device for t in given if isinstance(t, SimTensor)}
    for t in given:
        if isinstance(t, SimTensor):
            continue
        numbers = torch.Tag.pointwise in func.tags or name in _TAKE_NUMBERS
        numbers |= name.startswith(("_foreach", "_fused"))
        if name in _AT_INDICES and isinstance(args[0], SimTensor) and t is not args[-1]:
            gpu.upload()  # an index: legal, and a hidden copy
        elif t.dim() or not numbers or (t is args[0] and func._schema.is_mutable):
            here.add(t.device)
    return _the_one(name, here)


def _the_one(name, devices):
    if len(devices) == 1:
        return next(iter(devices))
    gpu.fault(f"devices meet in {name}")
    raise RuntimeError(
        "Expected all tensors to be on the same device, but found at least two devices, "
        f"{' and '.join(sorted(map(str, devices)))}! (op {name})"
    )


def kernels(func, args):
    """How many kernels an operator launches."""
    name = _name(func)
    if func.is_view or name in _FREE:
        return 0
    if name.startswith(("_foreach", "_fused", "_amp_foreach")):
        return math.ceil(max((len(a) for a in args if isinstance(a, list)), default=1) / 36)
    if name.startswith("index_put") and len(args) > 3 and args[3]:
        return 9  # what accumulates sorts its indices
    selects = name in _AT_INDICES and _waits(func, args)
    return _KERNELS.get(name, 1) + selects * _KERNELS["nonzero"]


def _waits(func, args):
    """Whether the CPU needs what the device computes to know the result or its size."""
    if _name(func) in _AT_INDICES:
        return any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in args[1])
    return bool({torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output} & {*func.tags})


def _to_copy(source, *, dtype=None, device=None, non_blocking=False, memory_format=None, **_):
    dtype, target = dtype or source.dtype, torch.device(device or source.device)
    form = {} if memory_format is None else {"memory_format": memory_format}
    call = partial(aten._to_copy, source.inner, dtype=dtype, **form)
    gpu.count("_to_copy", int(target.type != "cpu" or dtype != source.dtype))
    if target.type != "cpu":
        return gpu.hold(gpu.execute(call), target)
    return gpu.download(call(), waits=not non_blocking)


def _copy_(to, source, non_blocking=False):
    if isinstance(to, SimTensor) and not isinstance(source, SimTensor):
        gpu.upload(waits=not non_blocking)
        gpu.count("copy_", int(to.dtype != source.dtype))
        to.inner.copy_(source)
    elif isinstance(to, SimTensor):
        gpu.count("copy_", 1)
        gpu.execute(partial(to.inner.copy_, source.inner), [to.inner])
    else:
        gpu.download(source.inner, to, waits=not non_blocking)
    return to


# -- attention -------------------------------------------------------------------------------------


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
    """As torch chooses on CUDA: flash attention for 16 bits without a mask, the memory-efficient
    kernel for equal numbers of heads, else many kernels, whose scores take memory."""
    given = [query, key, value, *([] if attn_mask is None else [attn_mask])]
    _the_one("scaled_dot_product_attention", {t.device for t in given})
    if len({t.dtype for t in given if t.dtype != torch.bool}) > 1:
        raise RuntimeError("Expected query, key, value and mask to have the same dtype")
    half = query.dtype in (torch.float16, torch.bfloat16)
    fits = all(t.shape[-1] % (8 if half else 4) == 0 for t in (query, value))
    flash = half and attn_mask is None and fits and query.shape[-1] <= 256
    efficient = (half or query.dtype == torch.float32) and not options.get("enable_gqa") and fits
    if query.device.type == "mps" or flash or efficient:
        options |= {"dropout_p": dropout_p, "is_causal": is_causal}
        return _Fused.apply(query, key, value, attn_mask, options)
    if attn_mask is not None and attn_mask.dtype == torch.bool:  # as torch does before it
        hidden = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = hidden.masked_fill_(~attn_mask, -torch.inf)
    plain = aten._scaled_dot_product_attention_math
    return plain(query, key, value, attn_mask, dropout_p, is_causal, **options)[0]


class _Fused(torch.autograd.Function):
    """Attention in one kernel, which keeps a number per query for its backward pass."""

    @staticmethod
    def forward(ctx, query, key, value, mask, options):
        # A mask whose rows are not aligned is copied first.
        gpu.count("attention", 1 + (mask is not None and mask.shape[-1] % 8 > 0))
        call = partial(
            F.scaled_dot_product_attention, *_inner((query, key, value, mask)), **options
        )
        out = gpu.hold(gpu.execute(call), query.device)
        sums = gpu.hold(torch.zeros(out.shape[:-1]), query.device)
        ctx.save_for_backward(query, key, value, mask, out, sums)
        ctx.options = options
        return out

    @staticmethod
    def backward(ctx, grad):
        *given, mask, _, _ = ctx.saved_tensors
        gpu.count("attention backward", 3)
        with torch.enable_grad():
            inner = [t.inner.detach().requires_grad_() for t in given]
            out = F.scaled_dot_product_attention(*inner, _inner(mask), **ctx.options)
            grads = torch.autograd.grad(out, inner, grad.inner)
        return *(gpu.hold(g, grad.device) for g in grads), None, None


# -- factories -------------------------------------------------------------------------------------


def register(*kinds):
    """Put factories and attention at the dispatch keys of these backends; what is returned keeps
    them there."""
    libraries = []
    for kind in kinds:
        libraries.append(torch.library.Library("aten", "IMPL", kind.upper()))
        for name in _FACTORIES:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(aten, packet), overload or "default")
            libraries[-1].impl(name, partial(_make, op, packet, kind))
        libraries.append(torch.library.Library("aten", "IMPL", f"Autograd{kind.upper()}"))
        libraries[-1].impl("scaled_dot_product_attention", attention)
    return libraries


def _make(op, name, kind, *args, device=None, pin_memory=None, layout=None, **options):
    is_empty = name in _FREE
    gpu.count(name, int(not is_empty))
    new = gpu.execute(partial(op, *args, **options, device="cpu"), recorded=not is_empty)
    return gpu.hold(new, torch.device(kind, torch.device(device or kind).index or 0))
