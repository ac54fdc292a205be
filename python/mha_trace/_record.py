"""``record``: what runs inside a with-block is kept, and nothing of the model is changed."""

from __future__ import annotations

import json
import operator
import re
from collections.abc import Iterable
from contextlib import ExitStack
from types import TracebackType
from typing import Any

from ._binary import Error
from ._capture import Capture
from ._commands import private_folder, run_to_file
from ._parameters import Parameters
from ._parts import Parts
from ._roles import alike, blocks, config_of, is_called, layer_of, numbers, roles
from ._run import Run


class record:  # noqa: N801 - it is used as a function, and is a context manager
    """Records the attention that runs in a model: the inputs, outputs and projections of its layers, and the inputs and
    outputs of the attention function. With ``backward``, their gradients are kept too while ``loss.backward()`` runs.

    ``layers`` (or ``layer``) chooses layers by number, one or several; ``prefix`` chooses modules by the start of
    their path. Without either, or with ``layers="all"``, all attention is recorded. With ``everything``, what lies
    between attentions is kept, too: what embeddings, norms, MLPs and layers get and give, and the logits. If the
    attention modules are not called attention, ``attention`` gives their class or the end of their path. Only what is
    asked for is kept, as copies on the CPU. The numbers, mode, gradients and hooks of the model do not change.

    >>> import mha_trace, torch
    >>> attention = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    >>> x = torch.randn(1, 4, 8)
    >>> with mha_trace.record(attention) as run:
    ...     output, weights = attention(x, x, x)
    >>> run.check().same
    True
    """

    def __init__(
        self,
        model: Any,
        layers: int | Iterable[int] | str | None = None,
        *,
        layer: int | None = None,
        prefix: str | tuple[str, ...] = "",
        attention: str = "",
        backward: bool = False,
        everything: bool = False,
        **others: Any,
    ) -> None:
        if not hasattr(model, "named_modules"):
            raise Error(f"error: {type(model).__name__} is no module of PyTorch\nhelp: record_function takes functions")
        for name in others:
            raise Error(
                f"error: record has no setting {name}: it takes layers, prefix, attention, backward and everything, "
                "and keeps all heads and items\n"
                "help: take a part from what was recorded: run[0]['head_outputs'][:, 2] is of head 2"
            )
        if not isinstance(prefix, (str, tuple)):
            raise Error(
                f"error: prefix is {prefix!r}\nhelp: give the start of a module's path, such as 'model.decoder'"
            )
        asked_for = [*_numbers("layers", layers), *_numbers("layer", layer)]
        self._modules = dict(model.named_modules())
        self._config = config_of([model])
        self._layers = set(asked_for) if asked_for else None
        self._prefix = prefix
        self._undo: ExitStack | None = None
        self._check()
        asked = {path: module for path, module in self._modules.items() if self._is_asked(path, module)}
        around = blocks(asked, attention)
        if attention and not any(is_called(path, module, attention) for path, module in asked.items()):
            raise Error(f"error: no module of the model is called {attention}, by its class or the end of its path")
        self._alike = [] if attention else alike(asked)
        found = {id(part): role for path in around for _, part, role in roles(path, asked[path])}
        self._capture = Capture(self._modules, around, found, Parameters(model), bool(backward))
        self._watched = {path: module for path, module in asked.items() if id(module) in found or not _is_plain(module)}
        parts = {path: module for path, module in self._modules.items() if path == "" or path in asked}
        self._parts = Parts(parts, around) if everything else None

    def _check(self) -> None:
        """Refuses what cannot be recorded."""
        for path, module in self._modules.items():
            if type(module).__name__ == "OptimizedModule" or getattr(module, "_compiled_call_impl", None) is not None:
                raise Error(
                    f"error: {path or 'the model'} is compiled, and runs no Python that could be recorded\n"
                    "help: record it uncompiled: of torch.compile(model) the ._orig_mod"
                )
        if self._prefix and not any(path.startswith(self._prefix) for path in self._modules):
            raise Error(f"error: no module of the model has a path that starts with {self._prefix}")
        known = {layer_of(path, module) for path, module in self._modules.items()}
        known |= {number for path in self._modules for number in numbers(path)[:1]}
        there = sorted(number for number in known if number is not None)
        wrong = sorted((self._layers or set()) - set(there))
        if wrong:
            said = f"it has {there[0]} to {there[-1]}" if there else "its modules have no numbers; leave layers out"
            raise Error(f"error: the model has no layer {', '.join(map(str, wrong))}: {said}")

    def _is_asked(self, path: str, module: Any) -> bool:
        if not path.startswith(self._prefix):
            return False
        if self._layers is None:
            return True
        # A module says its layer for all that is in it.
        parts = path.split(".")
        said = None
        for end in range(1, len(parts) + 1):
            inner = getattr(self._modules.get(".".join(parts[:end])), "layer_idx", None)
            said = inner if isinstance(inner, int) else said
        number = said if said is not None else layer_of(path, module)
        return number in self._layers

    def __enter__(self) -> Run:
        if self._undo is not None or self._capture.has_run:
            raise Error("error: a recording is entered a second time\nhelp: make a new one, by record(model)")
        undo = ExitStack()
        rotary = [module for module in self._modules.values() if re.search("Rotary", type(module).__name__)]
        try:
            self._capture.start(undo, self._watched, rotary)
            if self._parts is not None:
                self._parts.start(undo)
        except BaseException:
            undo.close()
            raise
        self._undo = undo
        return Run(self._capture.calls, self._nothing, left_out=self._capture.left_out, parts=self._parts)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._undo is not None:
            self._undo.close()
        # What was recorded does not keep the model alive.
        self._capture.forget()
        self._modules, self._watched = {}, {}

    def _nothing(self) -> str:
        """Why there is nothing."""
        if not self._capture.has_run:
            return (
                "error: nothing was recorded: none of the modules that were asked for ran inside the with-block\n"
                "help: call the model inside it, the same that record was given"
            )
        if self._capture.left_out:
            what = "; ".join(f"{path} is {kind}" for path, kind in self._capture.left_out.items())
            return f"error: nothing was recorded: {what}, which is no softmax attention\nhelp: ask for other layers"
        if self._capture.no_cores:
            path, why = next(iter(self._capture.no_cores.items()))
            return (
                f"error: nothing was recorded: {path or 'the model'} has no projection of its output, and {why}, "
                "so that no core could be read\nhelp: record what computes it, by record_function"
            )
        if self._alike:
            some, last = ", ".join(self._alike[:4]) or "the model", self._alike[0].rpartition(".")[2]
            more = ", …" if len(self._alike) > 4 else ""
            return (
                "error: nothing was recorded: no attention was seen in what ran, and these modules have projections of "
                f"queries, keys and values, and of an output: {some}{more}\n"
                f"help: say that they are attention: record(model, attention={last or 'NAME'!r})"
            )
        refused = _refused(self._config) if self._config else None
        return refused or (
            "error: nothing was recorded: no attention was seen in what ran\n"
            "help: attention is seen where it is a module called attention, goes through transformers' "
            "AttentionInterface, or calls F.scaled_dot_product_attention; other functions of q, k and v are recorded "
            "by record_function. PyTorch's fused encoder layers are seen after "
            "torch.backends.mha.set_fastpath_enabled(False)"
        )


def _numbers(name: str, value: Any) -> list[int]:
    """The layers that an argument picks."""
    if value is None or value == "all":
        return []
    several = hasattr(value, "__iter__") and not isinstance(value, (str, bytes))
    found = list(value) if several else [value]
    if not found:
        raise Error(f"error: {name} is empty, and nothing would be recorded\nhelp: leave it out to record all layers")
    if any(isinstance(number, bool) or not hasattr(number, "__index__") for number in found):
        raise Error(f"error: {name} is {value!r}\nhelp: give the number of a layer, or a list of them: layers=[0, 3]")
    return [operator.index(number) for number in found]


def _is_plain(module: Any) -> bool:
    """Whether a module of torch itself runs no attention, nor others."""
    kind = type(module)
    return kind.__module__.startswith("torch.nn.modules") and not re.search("Transformer|Multihead", kind.__name__)


def _refused(config: dict[str, Any]) -> str | None:
    """Why the attention of such a model is not traced, if that is known."""
    with private_folder() as folder:
        path = folder / "config.json"
        path.write_text(json.dumps(config, default=str), encoding="utf-8")
        try:
            run_to_file([f"--model-config={path}"], folder)
        except Error as error:
            found = re.search(r"has model_type .* not supported", str(error))
            return f"error: nothing was recorded: the model {found[0]}" if found else None
    return None
