"""``check_kernel``: an attention function at all the shapes and numbers at which kernels break."""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Callable

import numpy as np

from . import _files
from ._arrays import Array, as_array
from ._binary import Error, run
from ._commands import private_folder
from ._function import NAME_OF, NAMES, record_function
from ._functions import bound_names
from ._gradients import recorded_backward
from ._settings import flags
from ._sweep_report import KernelReport

# What functions call the numbers of valid keys.
LENGTHS = ("lengths", "cache_seqlens", "seqlens_k", "seqused_k", "context_lens", "kv_lens", "valid_lens")
# The case by which the order of axes is told.
PROBE: dict[str, Any] = {"only": ["few-tokens"], "skip": (), "dtypes": ["f32"], "cases": None}
# What a check of one's own raises.
REFUSALS = (ValueError, TypeError, NotImplementedError, AssertionError, RuntimeError)


def check_kernel(
    function: Callable[..., Any],
    q: Any = None,
    k: Any = None,
    v: Any = None,
    *,
    backward: bool = False,
    layout: str | None = None,
    causal_align: str | None = None,
    empty_rows: str | None = None,
    only: Iterable[str] = (),
    skip: Iterable[str] = (),
    cases: int | None = None,
    dtypes: Iterable[str] | None = None,
    tile_size: int | None = None,
    takes: Iterable[str] | None = None,
    seed: int | None = None,
    device: Any = None,
    settings: Mapping[str, Any] | None = None,
    **kwargs: Any,
) -> KernelReport:
    """Calls an attention function at the shapes and numbers at which kernels break, checks what it gives, and tells
    which cases fail and which mistake explains them.

    ``q``, ``k`` and ``v`` are a case too, and say how many heads and features the others have. ``causal=True`` and
    ``scale=…`` are what the function is to do; they are passed to it by the names that it has for them. All other
    arguments are passed as they are. ``layout`` is the order of axes: ``bhsd`` or ``bshd``; if it is not given, the
    numbers decide. ``settings`` are further settings of the ``check``, such as ``window``. The other arguments are the
    flags of ``mha-trace fuzz``.

    >>> import mha_trace, torch
    >>> attend = torch.nn.functional.scaled_dot_product_attention
    >>> mha_trace.check_kernel(attend, is_causal=True, only=["decode", "tail"]).same
    True
    """
    kernel = Kernel(function, kwargs, like=q, backward=backward, device=device)
    # q, k and v come in as files.
    stated: dict[str, Any] = {**kernel.stated, **(settings or {}), "q": q, "k": k, "v": v, "backward": backward}
    stated |= {"causal_align": causal_align, "empty_rows": empty_rows, "seed": seed}
    more = {
        "only": list(only),
        "skip": list(skip),
        "cases": cases,
        "dtypes": list(dtypes or kernel.dtypes),
        "tile_size": tile_size,
        "takes": kernel.takes if takes is None else takes,
    }
    # In the wrong order of axes all would be wrong, and be explained at length.
    if layout is None and _is_same(kernel, "bshd", stated, more) and not _is_same(kernel, "bhsd", stated, more):
        return replace(_swept(kernel, "bshd", stated, more), layout="bshd")
    return _swept(kernel, layout or "bhsd", stated, more)


def _is_same(kernel: Kernel, layout: str, stated: Any, more: Any) -> bool:
    """Whether a function is right in this order of axes where heads and tokens differ in number."""
    q = stated.get("q")
    own = {"q": None, "k": None, "v": None, "head_dim": None if q is None else q.shape[-1]}
    return _swept(kernel, layout, {**stated, **own}, {**more, **PROBE}).same


def _swept(kernel: Kernel, layout: str, stated: Mapping[str, Any], more: Mapping[str, Any]) -> KernelReport:
    """Writes the cases, calls the function for each, and has its outputs checked: two runs of the binary in all."""
    with private_folder() as folder:
        common = [*flags({**stated, "qkv_format": layout}, folder), *_flags(more), "--format=json"]
        text, _ = run(["fuzz", f"--write={folder}", *common], str(folder))
        for case in json.loads(text)["cases"]:
            kernel.answer(case, folder)
        text, same = run(["fuzz", f"--read={folder}", *common], str(folder))
    return KernelReport(text, same)


def case_names(more: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The rows and types of the cases of a sweep, in order."""
    text, _ = run(["fuzz", "--list", "--format=json", *_flags(more)])
    return [(case["row"], case["dtype"]) for case in json.loads(text)["cases"]]


def _flags(more: Mapping[str, Any]) -> list[str]:
    stated = {name: value for name, value in more.items() if value}
    listed = {name: value if isinstance(value, (int, str)) else ",".join(value) for name, value in stated.items()}
    return [f"--{name.replace('_', '-')}={value}" for name, value in listed.items()]


@dataclass
class ProblemError(Exception):
    """Why there is no output to check."""

    state: str
    said: str


class Kernel:
    """A function, and how it is called."""

    def __init__(
        self, function: Callable[..., Any], kwargs: Mapping[str, Any], *, like: Any, backward: bool, device: Any
    ) -> None:
        self._function = function
        self._backward = backward
        self._library = _library(like)
        self._device = getattr(like, "device", None) if device is None else device
        self._parameters = _parameters(function)
        named = {NAME_OF[name]: (name, value) for name, value in kwargs.items() if name in NAME_OF}
        if "attn_mask" in named or "sinks" in named:
            raise Error(
                "error: a sweep has masks of its own, and no sinks\nhelp: leave them out, or use record_function"
            )
        self._others = {name: value for name, value in kwargs.items() if name not in NAME_OF}
        self._spelled = {ours: name for ours, (name, _) in named.items()}
        values = {ours: value for ours, (_, value) in named.items()}
        causal = self._name("is_causal")
        if "is_causal" not in values and causal and self._parameters[causal] is True:
            values["is_causal"] = True
        self._is_causal = bool(values.get("is_causal"))
        self._values = {ours: value for ours, value in values.items() if ours != "is_causal" and value is not None}
        self.stated: dict[str, Any] = {"mask": "causal" if self._is_causal else "none", **self._values}
        wants = {"attn-mask": self._name("attn_mask"), "lengths": self._lengths()}
        self.takes = [name for name, wanted in wants.items() if wanted]
        self.dtypes = ("f32", "f16") if self._library == "numpy" else ("f32", "bf16", "f16")

    def _name(self, ours: str) -> str | None:
        """What the function calls one of its arguments."""
        return next((name for name in NAMES[ours] if name in self._parameters), None)

    def _lengths(self) -> str | None:
        return next((name for name in LENGTHS if name in self._parameters), None)

    def answer(self, case: Mapping[str, Any], folder: Path) -> None:
        """Calls the function for a case, and writes what it gives, or what was wrong."""
        given, _ = _files.read(folder / "in" / f"{case['name']}.safetensors")
        out = folder / "out" / f"{case['name']}.safetensors"
        try:
            _files.write(out, self._outputs(case, given))
        except ProblemError as problem:
            said = {"state": problem.state, "said": problem.said}
            out.with_suffix(".json").write_text(json.dumps(said), encoding="utf-8")

    def _outputs(self, case: Mapping[str, Any], given: Mapping[str, Array]) -> dict[str, Any]:
        arrays = {name: self._own(array) for name, array in given.items()}
        inputs = [arrays[name] for name in "qkv"]
        arguments = self._arguments(case, arrays)
        try:
            if self._backward:
                run = recorded_backward(self._function, *inputs, arrays["d_out"], **arguments)
            else:
                run = record_function(self._function, *inputs, **arguments)
        except Error as error:
            raise ProblemError("shape", str(error).splitlines()[0].removeprefix("error: ")) from error
        except Exception as error:
            said = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"
            raise ProblemError("refused" if _is_refusal(error) else "failed", said.rstrip(": ")) from error
        changed = [name for name in "qkv" if as_array(arrays[name]).data.tobytes() != given[name].data.tobytes()]
        if changed:
            raise ProblemError("overwrites", f"it writes into {', '.join(changed)}")
        out = run.result[0] if isinstance(run.result, (tuple, list)) else run.result
        shared = [name for name, tensor in zip("qkv", inputs) if _is_shared(out, tensor)]
        if shared:
            raise ProblemError("aliases", f"its output is the memory of {', '.join(shared)}")
        gradients = {f"d{name}": run[0].gradients[name] for name in "qkv" if self._backward}
        return {"out": run[0].tensors["out"], **gradients}

    def _own(self, array: Array) -> Any:
        """An array of the library that the function computes with."""
        if self._library == "torch":
            torch = sys.modules["torch"]
            data = np.array(array.data)
            tensor = torch.from_numpy(data.view(np.int16)).view(torch.bfloat16) if array.code == "BF16" else None
            tensor = torch.from_numpy(data) if tensor is None else tensor
            return tensor.to(self._device) if self._device is not None else tensor
        if self._library == "jax":
            numbers = sys.modules["jax"].numpy
            own = numbers.asarray(array.numpy())
            return own.astype("bfloat16") if array.code == "BF16" else own
        return np.array(array.numpy())

    def _arguments(self, case: Mapping[str, Any], arrays: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a case behind q, k and v, by the names that the function has for them."""
        found = dict(self._others)
        values = {**self._values, "is_causal": case["causal"]}
        for ours in ("is_causal", "scale", "softcap"):
            name = self._name(ours)
            if name is None and ours in self._spelled and self._parameters.get("**"):
                name = self._spelled[ours]
            if name is None:
                continue
            if ours in values and (ours in self._spelled or values[ours] or self._is_causal or self._is_needed(name)):
                found[name] = values[ours]
            elif ours == "scale" and self._is_needed(name):
                found[name] = case["head_dim"] ** -0.5
        for name, wanted in (("attn_mask", self._name("attn_mask")), ("lengths", self._lengths())):
            if wanted and name in arrays:
                found[wanted] = arrays[name]
        if "enable_gqa" in self._parameters and case["kv_heads"] < case["heads"]:
            found.setdefault("enable_gqa", True)
        return found

    def _is_needed(self, name: str) -> bool:
        return self._parameters.get(name) is inspect.Parameter.empty


def _parameters(function: Callable[..., Any]) -> dict[str, Any]:
    """The parameters of a function, and their defaults; ``**`` if it takes any others."""
    try:
        all_of = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        module, name = str(getattr(function, "__module__", "")), getattr(function, "__name__", "")
        is_of_torch = module.startswith("torch") or "scaled_dot_product" in name
        return dict.fromkeys(bound_names(function) if is_of_torch else ()) or {"**": True}
    found: dict[str, Any] = {one.name: one.default for one in all_of if one.kind is not one.VAR_POSITIONAL}
    return {**found, "**": any(one.kind is one.VAR_KEYWORD for one in all_of)}


def _library(like: Any) -> str:
    """Whose arrays the function gets."""
    if like is not None:
        module = type(like).__module__.partition(".")[0]
        return "torch" if hasattr(like, "detach") else "jax" if module.startswith("jax") else "numpy"
    try:
        import torch  # noqa: F401
    except ImportError:
        return "numpy"
    return "torch"


def _is_refusal(error: BaseException) -> bool:
    """Whether it comes from a check: raised by a statement of Python in the function's own code, or as not
    implemented."""
    if isinstance(error, NotImplementedError):
        return True
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None or not isinstance(error, REFUSALS):
        return False
    code = trace.tb_frame.f_code
    return _raises(code.co_code[trace.tb_lasti]) and "site-packages" not in code.co_filename


def _raises(opcode: int) -> bool:
    import dis

    return dis.opname[opcode] == "RAISE_VARARGS"


def _is_shared(out: Any, tensor: Any) -> bool:
    """Whether two arrays are in one place of the memory."""
    if out is tensor:
        return True
    if hasattr(out, "untyped_storage") and hasattr(tensor, "untyped_storage"):
        return bool(out.numel()) and out.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()
    return isinstance(out, np.ndarray) and isinstance(tensor, np.ndarray) and np.shares_memory(out, tensor)
