"""safetensors files, written and read without a dependency: a length, a header in JSON, the numbers."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Union

import numpy as np

from ._arrays import CODES, Array, as_arrays
from ._binary import Error

StrPath = Union[str, "os.PathLike[str]"]


def write(path: StrPath, arrays: Mapping[str, Any], about: Mapping[str, Any] | None = None) -> None:
    """Writes arrays of any library by name; ``about`` is the JSON of the metadata key ``mha-trace``.

    The file comes into its place whole: where writing fails, one that was there stays as it was.
    """
    header: dict[str, Any] = {}
    if about is not None:
        header["__metadata__"] = {"mha-trace": json.dumps(about)}
    held, end = as_arrays(arrays), 0
    for name, array in held.items():
        start, end = end, end + array.data.nbytes
        header[name] = {"dtype": array.code, "shape": list(array.shape), "data_offsets": [start, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    target = Path(path)
    partly = target.with_name(f".{target.name}.{os.getpid()}.part")
    try:
        with open(partly, "wb") as file:
            file.write(struct.pack("<Q", len(text)) + text)
            for array in held.values():
                little = array.data.astype(array.data.dtype.newbyteorder("<"), copy=False)
                file.write(np.ascontiguousarray(little).tobytes())
        os.replace(partly, target)
    except OSError as error:
        raise Error(f"error: {target} cannot be written: {error.strerror}") from error
    finally:
        partly.unlink(missing_ok=True)


def read(path: StrPath) -> tuple[dict[str, Array], dict[str, Any]]:
    """The arrays of a safetensors file by name, and what its metadata key ``mha-trace`` says."""
    try:
        data = Path(path).read_bytes()
        (length,) = struct.unpack_from("<Q", data)
        header = json.loads(data[8 : 8 + length])
        about = json.loads(header.pop("__metadata__", {}).get("mha-trace", "{}"))
        arrays = {}
        for name, entry in header.items():
            start, end = entry["data_offsets"]
            kind = np.dtype(CODES[entry["dtype"]])
            kind = kind.newbyteorder("<")
            found = np.frombuffer(data[8 + length + start : 8 + length + end], dtype=kind)
            arrays[name] = Array(entry["dtype"], found.reshape(entry["shape"]))
    except OSError as error:
        raise Error(f"error: {path} cannot be read: {error.strerror}") from error
    except (struct.error, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Error(f"error: {path} is no safetensors file: {error}") from error
    return arrays, about
