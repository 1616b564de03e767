"""Writes and reads safetensors files. It uses only torch, so that the exporter needs no other package."""

import ctypes
import json
import pathlib

import torch

DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


def write(file: pathlib.Path, tensors: dict[str, torch.Tensor]) -> None:
    """Writes a safetensors file. Tensors with larger elements come first, so that each tensor is aligned to the size of its
    elements."""
    ordered = sorted(tensors.items(), key=lambda item: -item[1].element_size())
    header, end = {}, 0
    for name, tensor in ordered:
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(file, "wb") as out:
        out.write(len(text).to_bytes(8, "little") + text)
        for _, tensor in ordered:
            data = tensor.detach().cpu().contiguous()
            out.write(ctypes.string_at(data.data_ptr(), data.numel() * data.element_size()) if data.numel() else b"")


def read(file: pathlib.Path) -> dict[str, torch.Tensor]:
    content = pathlib.Path(file).read_bytes()
    begin = 8 + int.from_bytes(content[:8], "little")
    types = {name: dtype for dtype, name in DTYPES.items()}
    tensors = {}
    for name, entry in json.loads(content[8:begin]).items():
        if name == "__metadata__":
            continue
        first, last = entry["data_offsets"]
        data = bytearray(content[begin + first:begin + last])
        flat = torch.frombuffer(data, dtype=types[entry["dtype"]]) if data else torch.empty(0, dtype=types[entry["dtype"]], device="cpu")
        tensors[name] = flat.reshape(entry["shape"])
    return tensors
