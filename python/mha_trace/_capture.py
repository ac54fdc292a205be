"""What runs in the modules of a model while it is recorded: frames of a stack, and the attention functions in them."""

from __future__ import annotations

import functools
import sys
import threading
from collections import ChainMap, Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Callable

from ._backward import keep_gradient, own_tensors
from ._binary import Error
from ._call import Call
from ._functions import attention_call, bound_names, default_of, joined_call, kept, module_call, sdpa_call, unseen_call
from ._inputs import apart, in_rows, inputs
from ._orders import NORMED, TOKENS_FIRST, normed_heads
from ._parameters import Parameters
from ._roles import BIASES, PACKED, config_of, isinstance_named, layer_of, roles
from ._seen import UNSEEN
from ._undone import bound, is_in_backward, replaced, transformers_interface

# What attention functions of transformers get behind the module, in order.
ARGUMENTS = ("query", "key", "value", "attention_mask")

# What calls of BLIP's text model say in place of its config.
IS_DECODER = "is_decoder"


@dataclass
class Frame:
    """A module that is running."""

    path: str
    module: Any
    arguments: dict[str, Any]
    is_block: bool
    kept: dict[str, Any] = field(default_factory=dict)
    calls: list[Call] = field(default_factory=list)
    holds_calls: bool = False
    packed: Any = None
    given: dict[str, Any] = field(default_factory=dict)
    ran: set[str] = field(default_factory=set)
    has_backward: bool = False
    gradients: dict[str, Any] = field(default_factory=dict)
    # What ends the keeping of each.
    ends: dict[str, Callable[[], None]] = field(default_factory=dict)
    arithmetic: Any = None

    def take(self, name: str, tensor: Any) -> None:
        """Keeps a tensor, and its gradient if that is asked for."""
        self.kept[name] = kept(tensor)
        self.follow(name, tensor)

    def follow(self, name: str, tensor: Any) -> None:
        """Keeps the gradient of a tensor, if that is asked for."""
        if self.has_backward:
            self.ends[name] = keep_gradient(self.gradients, name, tensor)

    def gave(self, result: Any) -> None:
        """Leaves out the gradients of its inputs where it gave another thing than its projection: these go through a
        residual and a norm, too."""
        first, output = result[0] if isinstance(result, tuple) and result else result, self.kept.get("output")
        is_other = getattr(first, "shape", None) == getattr(output, "shape", ()) and not (kept(first) == output).all()
        self.leave_out(("x", "memory") if is_other else ())

    def leave_out(self, names: Iterable[str]) -> None:
        """Keeps no gradients of these."""
        for name in names:
            self.ends.get(name, lambda: None)()

    def keep(self, role: str, args: tuple[Any, ...], result: Any) -> None:
        """Keeps what a module inside of a block gave, heads in the documented order. A projection may be used once more
        for something else."""
        if role in ("q", "k", "v") and role in self.ran:
            return
        self.ran.add(role)
        if role == PACKED:
            self.packed = result
            return
        copy = kept(result)
        if role in NORMED and copy.dim() == 4:
            made: Any = self.kept.get(NORMED[role], self.packed)
            rows: Any = self.kept.get("x") if made is None else made
            is_clear = rows is not None and rows.dim() == 3 and args and args[0].shape == copy.shape
            copy = normed_heads(copy, args[0], made, rows.shape[1]) if is_clear else None
        if role in TOKENS_FIRST and copy.dim() == 4:
            role, copy = TOKENS_FIRST[role], copy.transpose(1, 2)
        if copy is not None:
            self.kept[role] = copy
            if copy.shape == result.shape:
                self.follow(role, result)
        if role == "output" and args and hasattr(args[0], "detach"):
            self.take("concat", args[0])


class Capture:
    """Watches modules, and keeps the calls of attention in them."""

    def __init__(
        self,
        modules: Mapping[str, Any],
        blocks: Mapping[str, str],
        roles: Mapping[int, str],
        parameters: Parameters,
        has_backward: bool = False,
    ) -> None:
        self.has_backward = has_backward
        self.modules, self.blocks, self.roles, self.parameters = modules, blocks, roles, parameters
        self.projecting = set(blocks.values())
        self.calls: list[Call] = []
        self.left_out: dict[str, str] = {}
        # Why what modules compute by themselves is no core, where nothing else was seen of them.
        self.no_cores: dict[str, str] = {}
        self.has_run = False
        self._counts: Counter[str] = Counter()
        # The first call of the keys that stand at a place in memory.
        self._keys: dict[int, Call] = {}
        self._local = threading.local()
        self._positions: Any = None
        # Whether whoever called the model said the positions; generate says them of itself.
        self._is_told_positions = self._generates = False

    @property
    def stack(self) -> list[Frame]:
        """The running modules of this thread, the innermost last."""
        if not hasattr(self._local, "stack"):
            self._local.stack, self._local.is_inside = [], False
        found: list[Frame] = self._local.stack
        return found

    def forget(self) -> None:
        """Lets go of the model."""
        self.parameters.forget()
        self.modules, self._keys = {}, {}

    # ---- what is watched, and put back

    def start(self, undo: ExitStack, watched: Mapping[str, Any], rotary: list[Any]) -> None:
        """Watches these modules and the attention functions; ``undo`` puts all back."""
        import torch.nn.functional as functional

        model = self.modules[""]
        replaced(model, "forward", self._watch_model(model.forward), undo)
        if hasattr(model, "generate"):
            replaced(model, "generate", self._watch_generate(model.generate), undo)
        for path, module in watched.items():
            replaced(module, "forward", self._watch(path, module), undo)
            for name in BIASES:
                if hasattr(module, name):
                    replaced(module, name, self._watch_biases(getattr(module, name)), undo)
        for module in rotary:
            replaced(module, "forward", self._watch_positions(module), undo)
        for name, read in (("scaled_dot_product_attention", sdpa_call), ("multi_head_attention_forward", joined_call)):
            replaced(functional, name, self._watch_function(name, getattr(functional, name), read), undo)
        interface = transformers_interface()
        if interface is not None:
            replaced(interface, "get_interface", self._watch_interface(interface.get_interface), undo)
            return
        # Before transformers 5 every file of models has the eager function that its layers call.
        for home in {type(module).__module__ for module in watched.values()}:
            eager = getattr(sys.modules[home], "eager_attention_forward", None)
            if eager is not None:
                replaced(sys.modules[home], "eager_attention_forward", self._watch_attention("eager", eager), undo)

    def _watch(self, path: str, module: Any) -> Callable[..., Any]:
        original, role, is_block = module.forward, self.roles.get(id(module)), path in self.blocks
        takes_inputs = path in self.projecting
        decoder = default_of(original, IS_DECODER)

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            if is_in_backward():  # recomputed by checkpointing, and seen already
                return original(*args, **kwargs)
            self.has_run = True
            if self.has_backward and takes_inputs:
                args, kwargs = own_tensors(args, kwargs, each=False)
            arguments = decoder | bound(original, args, kwargs) if is_block or takes_inputs or decoder else {}
            frame = Frame(path, module, arguments, is_block, has_backward=self.has_backward)
            if takes_inputs:
                block = frame if is_block else self._block()
                if block is not None:
                    for name, tensor in inputs(frame.module, frame.arguments).items():
                        block.take(name, tensor)
            self.stack.append(frame)
            try:
                with self._arithmetic(frame):
                    result = original(*args, **kwargs)
            finally:
                self.stack.pop()
            self._finish(frame, role, args, result)
            return result

        return forward

    def _arithmetic(self, frame: Frame) -> AbstractContextManager[Any]:
        """Watches what a block computes by itself."""
        if not frame.is_block or isinstance_named(frame.module, "MultiheadAttention"):
            return nullcontext()
        from ._arithmetic import Arithmetic

        watching: AbstractContextManager[Any] = Arithmetic(frame.module, self.has_backward)
        frame.arithmetic = watching
        return watching

    def _watch_model(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            said = bound(original, args, kwargs).get("position_ids")
            self._is_told_positions = said is not None and not self._generates
            return original(*args, **kwargs)

        return forward

    def _watch_generate(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def generate(*args: Any, **kwargs: Any) -> Any:
            before, self._generates = self._generates, kwargs.get("position_ids") is None
            try:
                return original(*args, **kwargs)
            finally:
                self._generates = before

        return generate

    def _watch_positions(self, module: Any) -> Callable[..., Any]:
        original = module.forward

        @functools.wraps(original)
        def forward(*args: Any, **kwargs: Any) -> Any:
            positions = bound(original, args, kwargs).get("position_ids")
            if hasattr(positions, "detach"):
                self._positions = kept(positions)
            return original(*args, **kwargs)

        return forward

    def _watch_biases(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def biases(*args: Any, **kwargs: Any) -> Any:
            result, block = original(*args, **kwargs), self._block()
            x = block.kept.get("x") if block is not None else None
            if block is not None and x is not None:
                block.kept["attn_bias"] = kept(result).unflatten(0, (x.shape[0], -1))
                # They are made of queries and keys, too, which so have gradients of two kinds.
                block.leave_out(("x", "q", "k"))
            return result

        return biases

    def _watch_interface(self, original: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(original)
        def get_interface(*args: Any, **kwargs: Any) -> Any:
            function = original(*args, **kwargs)
            return self._watch_attention(
                str(kwargs.get("attn_implementation", args[1] if len(args) > 1 else None)), function
            )

        return get_interface

    def _watch_attention(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def attend(module: Any, *inputs: Any, **more: Any) -> Any:
            frame = self._frame_of(module)
            if frame is None or is_in_backward():
                return function(module, *inputs, **more)
            if self.has_backward:
                inputs, more = own_tensors(inputs, more, each=True)
            result = self._quietly(lambda: function(module, *inputs, **more))
            # What a function calls its first arguments is its own affair.
            arguments = {**bound(function, (module, *inputs), more), **dict(zip(ARGUMENTS, inputs))}
            self._add(frame, name, lambda: attention_call(name, arguments, result, module))
            return result

        return attend

    def _watch_function(
        self, name: str, original: Callable[..., Any], read: Callable[[dict[str, Any], Any], Call]
    ) -> Callable[..., Any]:
        """A function of ``torch.nn.functional``, whose calls are read by ``read``."""
        signature = bound_names(original)

        @functools.wraps(original)
        def attend(*args: Any, **kwargs: Any) -> Any:
            frame = self._frame_of(None)
            is_seen = frame is None or self._local.is_inside or isinstance_named(frame.module, "MultiheadAttention")
            if frame is None or is_seen or is_in_backward():
                return original(*args, **kwargs)
            if self.has_backward:
                args, kwargs = own_tensors(args, kwargs, each=read is sdpa_call)
            result = self._quietly(lambda: original(*args, **kwargs))
            arguments = dict(zip(signature, args), **kwargs)
            self._add(frame, name, lambda: read(arguments, result))
            return result

        return attend

    # ---- what is kept

    def _quietly(self, run: Callable[[], Any]) -> Any:
        """Runs an attention function whose own calls are not looked at."""
        from ._arithmetic import paused

        before, self._local.is_inside = self._local.is_inside, True
        try:
            with paused():
                return run()
        finally:
            self._local.is_inside = before

    def _frame_of(self, module: Any) -> Frame | None:
        """The frame that an attention function runs for: the block around the module, or the innermost module."""
        stack = self.stack
        known = next((at for at in range(len(stack) - 1, -1, -1) if stack[at].module is module), len(stack) - 1)
        for frame in reversed(stack[: known + 1]):
            if frame.is_block:
                return frame
        return stack[known] if stack else None

    def _block(self) -> Frame | None:
        """The attention block that is running."""
        return next((frame for frame in reversed(self.stack) if frame.is_block), None)

    def _add(self, frame: Frame, name: str, seen: Callable[[], Call]) -> None:
        """Keeps a call. What cannot be read of it is told when it is checked: the model runs on."""
        try:
            call = seen()
        except Exception as error:
            said = str(error) if isinstance(error, Error) else f"error: {name} cannot be read: {error!r}"
            call = Call("", None, 0, name, {}, problem=said)
        call.has_backward = self.has_backward
        if self.has_backward:
            self._follow(call)
        call.live = {}
        frame.calls.append(self._named(frame, call))
        self.calls.append(call)

    def _follow(self, call: Call) -> None:
        """Keeps the gradients of what an attention function got and gave."""
        for name, (tensor, change) in call.live.items():
            keep_gradient(call.gradients, name, tensor, change)
        if "k_heads" in call.live:
            place = call.live["k_heads"][0].untyped_storage().data_ptr()
            first = self._keys.setdefault(place, call)
            first.lends = first.lends or first.path != call.path

    def _named(self, frame: Frame, call: Call) -> Call:
        call.path = call.prefix = frame.path
        call.layer = layer_of(frame.path, frame.module)
        call.index = self._counts[frame.path]
        self._counts[frame.path] += 1
        call.positions, call.positions_are_own = self._positions_of(frame)
        around = [module for path, module in self.modules.items() if _is_around(path, frame.path)]
        configs = [config_of([*around, frame.module]), config_of(around[:1])]
        all_said = (frame.arguments.get(IS_DECODER) for frame in reversed(self.stack))
        said = next((one for one in all_said if isinstance(one, bool)), None)
        for config in configs:
            if said is not None and config and IS_DECODER in config:
                config[IS_DECODER] = said
        call.configs = [config for at, config in enumerate(configs) if config and config not in configs[:at]]
        return call

    def _positions_of(self, frame: Frame) -> tuple[Any, bool]:
        """The positions that turned the heads, which the rotary module got, or else the block; and whether the model
        made them itself."""
        said = frame.arguments.get("position_ids")
        said = kept(said) if hasattr(said, "detach") else None
        turned = self._positions
        if turned is None or (said is not None and said.shape[-1] != turned.shape[-1]):
            turned = said
        return turned, not self._is_told_positions

    def _other_kind(self, frame: Frame) -> str | None:
        """What the config calls the layer where that is no softmax attention, which has no steps to be seen."""
        config = config_of([module for path, module in self.modules.items() if _is_around(path, frame.path)])
        kinds, layer = (config or {}).get("layer_types") or [], layer_of(frame.path, frame.module)
        kind = kinds[layer] if layer is not None and layer < len(kinds) else None
        return kind if isinstance(kind, str) and "linear" in kind else None

    def _finish(self, frame: Frame, role: str | None, args: tuple[Any, ...], result: Any) -> None:
        """A module is done: what it gave is a step of the block around it, or it is a block itself."""
        block = self._block()
        # Quantised modules give the factor, too.
        made = result[0] if role and isinstance(result, tuple) and result else result
        if role and block is not None and hasattr(made, "detach"):
            block.keep(role, args, made)
            if hasattr(frame.module, "weight") or list(frame.module.children()):
                block.given.setdefault(role, next(iter(args), None))
        if not frame.is_block:
            return
        frame.gave(result)
        is_seen = frame.calls or frame.holds_calls or "head_outputs" in frame.kept
        cores = frame.arithmetic.cores if frame.arithmetic and not is_seen else []
        if isinstance_named(frame.module, "MultiheadAttention"):
            name = "nn.MultiheadAttention"
            self._add(frame, name, lambda: module_call(frame.module, frame.arguments, result))
        elif not frame.calls and not frame.holds_calls and (cores or {"output", "head_outputs"} & set(frame.kept)):
            kind = self._other_kind(frame)
            if kind:
                self.left_out[frame.path] = kind
                return
            if "head_outputs" in frame.kept:  # hook points, which have all of the core
                frame.kept.pop("x", None)
                turned = {f"{name}_heads": frame.kept.pop(f"{name}_rot", None) for name in "qk"}
                frame.kept.update({name: heads for name, heads in turned.items() if heads is not None})
            self._add(frame, UNSEEN, lambda: _unseen(frame, cores))
        elif frame.arithmetic and not frame.calls and not frame.holds_calls and frame.arithmetic.problem:
            self.no_cores[frame.path] = frame.arithmetic.problem
        if len(frame.calls) == 1:
            of_projections = apart(frame.given)
            frame.leave_out(of_projections)
            frame.kept.update(of_projections)
            frame.kept.update(in_rows(frame.kept))
        frame.given.clear()
        for call in frame.calls if len(frame.calls) == 1 else []:
            # What the function itself gave comes first.
            call.tensors = {**frame.kept, **call.tensors}
            call.gradients = ChainMap(call.gradients, frame.gradients)
            call.is_borrowed = "memory" not in frame.kept and _borrows(frame)
            if "output" in call.tensors:
                call.parameters = call.parameters or self.parameters.of(frame.path)
                found = self.parameters.facts(frame.path, frame.module)
                call.own_numbers, call.differences, call.lacks = found
        x = {name: frame.kept[name] for name in ("x",) if name in frame.kept}
        for core in cores[1:]:
            self._add(frame, UNSEEN, functools.partial(replace, core, tensors=x, arithmetic=core.tensors))
        for outer in self.stack:
            outer.holds_calls = outer.holds_calls or bool(frame.calls)


def _unseen(frame: Frame, cores: list[Call]) -> Call:
    """The call of a module that does its own arithmetic, with the first core that was seen of it."""
    crosses = "memory" in apart(frame.given)
    call = unseen_call(frame.arguments, layer_of(frame.path, frame.module), crosses)
    if cores:
        first = cores[0]
        call = replace(call, arithmetic=first.tensors, live=first.live, dropout=first.dropout)
    call.no_core = getattr(frame.arithmetic, "problem", "") or ("" if cores else "no softmax of torch ran in it")
    return call


def _borrows(frame: Frame) -> bool:
    """Whether a block made queries, and no keys though it has a projection of them."""
    if "q" not in frame.ran or "k" in frame.ran:
        return False
    return any(role == "k" for _, _, role in roles(frame.path, frame.module))


def _is_around(path: str, inner: str) -> bool:
    return path == "" or inner == path or inner.startswith(path + ".")
