"""Settings of a call as flags of the command line."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from . import _files
from ._arrays import as_array, is_array
from ._binary import Error

# What the functions decide themselves.
OWN = {
    "format": "the report has both forms",
    "output": "the arrays are what is returned",
    "color": "there is no terminal",
}
# What is shown, where arrays are given.
VIEW = ("steps", "batch_item", "head", "decimals", "edge", "full", "heatmap", "lang", "quiet")
# A file, or arrays that are written to one.
FILES = ("config", "x", "weights", "q", "k", "v", "memory", "past", "attn_mask", "rope_freqs", "model_config")


def flags(settings: Mapping[str, Any], folder: Path) -> list[str]:
    """The flags that say the same; arrays among the settings are written into ``folder``.

    >>> flags({"kv_heads": 2, "mask_fill": float("-inf"), "lengths": [3, 2], "bias": True}, Path())
    ['--kv-heads=2', '--mask-fill=-inf', '--lengths=3,2', '--bias']
    """
    found = []
    for name, value in settings.items():
        if name in OWN:
            raise Error(f"error: {name} is no setting here: {OWN[name]}")
        flag = "--" + name.replace("_", "-")
        if value is None or value is False:
            found += ["--no-bias"] if name == "bias" and value is False else []
        elif value is True:
            found.append(flag)
        else:
            found.append(f"{flag}={_text(name, value, folder)}")
    return found


def _text(name: str, value: Any, folder: Path) -> str:
    if name == "model_config" and (hasattr(value, "to_dict") or isinstance(value, Mapping)):
        return _json(folder / "model_config.json", value if isinstance(value, Mapping) else value.to_dict())
    if name == "config" and isinstance(value, Mapping):
        return _json(folder / "settings.json", value)
    if name == "rope_scaling" and isinstance(value, Mapping):
        return json.dumps(value)
    if isinstance(value, Mapping) and name in ("weights", "past"):
        _files.write(folder / f"{name}.safetensors", value)
        return str(folder / f"{name}.safetensors")
    if isinstance(value, Mapping):  # map, rtol, atol
        return ",".join(f"{key}={one}" if key else str(one) for key, one in value.items())
    if name in FILES and is_array(value):
        _files.write(folder / f"{name}.safetensors", {name: value})
        return f"{folder / name}.safetensors:{name}"
    if is_array(value):
        value = as_array(value, name).numpy()
        value = value.astype(int).tolist() if name == "key_mask" else value.tolist()
    if isinstance(value, (list, tuple)):
        return _listed(name, value)
    if isinstance(value, (float, np.floating)):
        return repr(float(value))
    return os.fspath(value) if isinstance(value, os.PathLike) else str(value)


def _listed(name: str, values: Any) -> str:
    """Lists as the flags have them: ``3,2``; of lists ``3,2/4,1``, and of masks ``110,011``."""
    if values and isinstance(values[0], (list, tuple)):
        within, between = ("", ",") if name == "key_mask" else (",", "/")
        return between.join(within.join(str(int(one)) for one in row) for row in values)
    return ",".join(str(value) for value in values)


def _json(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value, default=str), encoding="utf-8")
    return str(path)
