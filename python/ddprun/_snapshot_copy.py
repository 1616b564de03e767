"""Writes and reads one copy of a worker's state in the memory file of the agent. _snapshot.py explains the file, its two
generations and the order of the writes.

Table and Pickler split a state into the bytes of its tensors and arrays, and a pickle of everything else. Generation writes,
verifies and reads a copy. A state without tensors does not need torch."""

import contextlib
import io
import mmap
import os
import pickle
import struct
import sys
import zlib

_MAGIC = b"ddprun\x00\x03"
_FIELDS = ("sequence", "step", "rank", "world", "replicated", "kind", "buffers", "structure", "sum", "round")
HEADER = struct.Struct("<8sQqIIIIQQQII")  # the magic, _FIELDS, and a CRC-32 of all bytes before it
PAGE = 4096
# Number of bytes from the start of one generation to the next. It must be the same as in launcher/workers/snapshot_buffer.cpp.
GENERATION_STRIDE = 2 ** 40
_ALIGNED = 64
_WORDS, _CRC = 1, 2  # Kinds of checksum: the sum of the buffers' 64-bit words, or CRC-32 if the state has no tensors.


def loaded_torch():
    return sys.modules.get("torch")


def aligned(size):
    return -(-size // _ALIGNED) * _ALIGNED


class _Shape:
    """Represents a tensor while only shapes are compared."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype


class Table:
    """Lists the tensors of one state, and the storages that contain their bytes. Tensors that share a storage share it again
    after restore()."""

    def __init__(self):
        self.storages = []  # (offset, bytes)
        self.entries = []  # (storage, dtype, shape, stride, offset in the storage, is a Parameter, requires_grad)
        self.sources = []  # the storages as byte tensors, from which the bytes are copied
        self.bytes = 0
        self._known = {}  # {id of a tensor: index of its entry}
        self._kept = []  # keeps the tensors alive, so that Python cannot reuse an id()
        self._places = {}

    def number_of(self, tensor, torch):
        if id(tensor) not in self._known:
            data = tensor.detach()
            if tensor.is_conj() or tensor.is_neg():
                # This creates a new tensor, in which the pending conjugation or negation has been applied.
                data = data.resolve_conj().resolve_neg()
            self.entries.append((self._storage_of(data, torch), str(tensor.dtype)[len("torch."):], tuple(data.shape), tuple(data.stride()),
                                 data.storage_offset(), isinstance(tensor, torch.nn.Parameter), tensor.requires_grad))
            self._kept.append(tensor)
            self._known[id(tensor)] = len(self.entries) - 1
        return self._known[id(tensor)]

    def _storage_of(self, data, torch):
        if data.device.type == "meta":
            raise ValueError("a tensor on the meta device has no data")
        if hasattr(data, "untyped_storage"):
            source = torch.empty(0, dtype=torch.uint8, device=data.device).set_(data.untyped_storage())
        else:  # torch before 2.0
            source = data.as_strided((data.storage().size(),), (1,), 0).view(torch.uint8)
        place = source.data_ptr(), source.numel(), data.device
        if source.numel() and place in self._places:
            return self._places[place]
        self.storages.append((self.bytes, source.numel()))
        self.sources.append(source)
        self.bytes += aligned(source.numel())
        self._places[place] = len(self.storages) - 1
        return self._places[place]


class Pickler(pickle.Pickler):
    def __init__(self, file, table):
        super().__init__(file, protocol=5, buffer_callback=self._buffer)
        self._table = table
        self._torch = loaded_torch()
        self.buffers = []

    def persistent_id(self, value):
        torch = self._torch
        if torch is None or not isinstance(value, torch.Tensor):
            if torch is not None and type(value) is getattr(torch, "UntypedStorage", None):
                raise TypeError("a bare storage cannot be copied; pass its tensor")
            return None
        plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
        return self._table.number_of(value, torch) if plain else None

    def _buffer(self, buffer):
        try:
            self.buffers.append(buffer.raw())
        except BufferError:
            return True  # the array is not contiguous, so its bytes stay in the pickle
        return False


class _Unpickler(pickle.Unpickler):
    def __init__(self, text, buffers, tensor):
        super().__init__(io.BytesIO(text), buffers=buffers)
        self._tensor = tensor

    def persistent_load(self, number):
        return self._tensor(number)


def header_in(raw):
    magic, *values, check = HEADER.unpack(raw)
    header = dict(zip(_FIELDS, values))
    if magic != _MAGIC or header["sequence"] == 0 or check != zlib.crc32(raw[:-4]):
        return None
    return {**header, "replicated": bool(header["replicated"])}


def name_of(header):
    return header["step"], header["round"]


def size_of(header):
    return PAGE + header["buffers"] + header["structure"]


def header_of(header):
    """Returns the header as bytes, with its checksum."""
    raw = HEADER.pack(_MAGIC, *(int(header[field]) for field in _FIELDS), 0)
    return raw[:-4] + struct.pack("<I", zlib.crc32(raw[:-4]))


def _torch_of(header):
    """Returns torch, or None if it is neither needed nor imported yet. Imports it if the copy has tensors."""
    if header["kind"] == _WORDS:
        import torch  # noqa: F401
    return loaded_torch()


def _on_the_cpu(torch):
    """Returns a context in which new tensors are on the CPU, even if torch.set_default_device() has selected another device.
    torch before 2.0 has no default device."""
    return torch.device("cpu") if hasattr(torch, "set_default_device") else contextlib.nullcontext()


class Generation:
    """One of the two generations of a worker's slot. It is empty or has one copy of the state."""

    def __init__(self, file, place, number):
        self._file = file
        self._begin = (2 * place + number) * GENERATION_STRIDE
        self._map = None

    def _mapped(self, size):
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self._file, size, offset=self._begin)
        return self._map

    def allocated(self):
        return os.lseek(self._file, self._begin, os.SEEK_HOLE) - self._begin

    def header(self):
        """Returns the header, or None if the generation is empty. A header with sizes beyond the file's allocated memory is
        ignored."""
        header = header_in(bytes(self._mapped(PAGE)[:HEADER.size]))
        if header and size_of(header) > min(GENERATION_STRIDE, os.fstat(self._file).st_blocks * 512):
            return None
        return header

    def clear(self):
        self._mapped(PAGE)[:PAGE] = bytes(PAGE)

    def write(self, header, table, arrays, structure):
        """Writes the buffers and the structure, and then the header. The copy becomes valid only with the header, so the header
        is last."""
        begin = PAGE + table.bytes
        ends = begin + sum(aligned(len(array)) for array in arrays)
        size = ends + len(structure)
        memory = self._opened(size)
        torch = loaded_torch()
        if table.sources:
            whole = torch.frombuffer(memory, dtype=torch.uint8, count=size)
            for (offset, length), source in zip(table.storages, table.sources):
                if length:
                    whole[PAGE + offset:PAGE + offset + length].copy_(source)
        at = begin
        for array in arrays:
            memory[at:at + len(array)] = array
            at += aligned(len(array))
        memory[ends:size] = structure
        kind = _WORDS if table.sources else _CRC
        total = self._sum(kind, ends - PAGE, len(structure))
        memory[:HEADER.size] = header_of({**header, "kind": kind, "buffers": ends - PAGE, "structure": len(structure), "sum": total})

    def _opened(self, size):
        """Clears the header and returns `size` bytes of allocated memory for a new copy."""
        self.clear()
        if self.allocated() < size:
            os.posix_fallocate(self._file, self._begin, size)
        return self._mapped(size)

    def lent(self, header):
        """Returns (header, body) as bytes to send. The body is a view of the memory, not a copy."""
        return header_of(header), memoryview(self._mapped(size_of(header)))[PAGE:size_of(header)]

    def borrow(self, header, fill):
        """Receives a copy from another node. fill(view) writes the body of the copy into the view. The header is written only
        if the checksum of the body is correct."""
        memory = self._opened(size_of(header))
        fill(memoryview(memory)[PAGE:size_of(header)])
        if not self.is_whole(header):
            raise ValueError("its checksum is wrong")
        memory[:HEADER.size] = header_of(header)

    def _sum(self, kind, buffers, structure):
        memory = self._mapped(PAGE + buffers + structure)
        view = memoryview(memory)
        text = zlib.crc32(view[PAGE + buffers:PAGE + buffers + structure])
        if not buffers:
            return text
        if kind == _CRC:
            return zlib.crc32(view[PAGE:PAGE + buffers], text)
        torch = loaded_torch()
        words = torch.frombuffer(memory, dtype=torch.int64, offset=PAGE, count=buffers // 8)
        return (int(words.sum()) + text) % 2 ** 64

    def is_whole(self, header):
        _torch_of(header)
        return self._sum(header["kind"], header["buffers"], header["structure"]) == header["sum"]

    def read(self, header, with_bytes=True):
        """Returns (state, random state). If `with_bytes` is False, the state has a _Shape in place of each tensor."""
        memory = self._mapped(PAGE + header["buffers"] + header["structure"])
        text = bytes(memoryview(memory)[PAGE + header["buffers"]:PAGE + header["buffers"] + header["structure"]])
        storages, entries, arrays, pickled = pickle.loads(text)
        torch = _torch_of(header)
        made, bytes_of = {}, {}

        def storage(number):
            if number not in bytes_of:
                offset, length = storages[number]
                bytes_of[number] = torch.empty(length, dtype=torch.uint8, device="cpu")
                if length:
                    bytes_of[number].copy_(torch.frombuffer(memory, dtype=torch.uint8, offset=PAGE + offset, count=length))
            return bytes_of[number]

        def tensor(number):
            if number not in made:
                at, dtype, shape, stride, offset, is_parameter, grad = entries[number]
                dtype = getattr(torch, dtype)
                if 0 in shape:
                    one = torch.empty_strided(shape, stride, dtype=dtype, device="cpu")
                else:
                    whole = storage(at)
                    whole = whole[:whole.numel() // dtype_size(dtype) * dtype_size(dtype)]
                    # With .data, autograd treats the result as an independent tensor, not as a view.
                    one = whole.view(dtype).as_strided(shape, stride, offset).data
                made[number] = torch.nn.Parameter(one, requires_grad=grad) if is_parameter else one.requires_grad_(grad)
            return made[number]

        def dtype_size(dtype):
            return torch.empty(0, dtype=dtype, device="cpu").element_size()

        def shape_only(number):
            return _Shape(entries[number][2], entries[number][1])

        buffers = [bytearray(memoryview(memory)[PAGE + at:PAGE + at + length]) for at, length in arrays]
        with _on_the_cpu(torch):  # unpickling can create more tensors, for example for a sparse tensor
            return _Unpickler(pickled, buffers, tensor if with_bytes else shape_only).load()

    def shapes(self, header):
        """Returns the state, with a _Shape in place of each tensor. If a class in the state rejects a _Shape, the returned
        state has its tensors instead."""
        try:
            return self.read(header, with_bytes=False)[0]
        except Exception:  # a sparse tensor, for example, is built from other tensors and rejects a _Shape
            return self.read(header)[0]
