"""ddprun.snapshot() and ddprun.restore(): state that outlives a worker, in memory that the agent holds.

The problem. A script that is killed must resume from its last step, not from its last checkpoint on disk. Its own memory dies with it. All
ranks must restore the same step, although each of them may be killed at any moment.

How it goes wrong:
- A kill interrupts a copy. Half a state must not be restored.
- After a restart the ranks do step 11 again. A rank that was one step ahead offers its old step 11, and its peer offers the new one. These are
  different states under one number.
- Copies that are newer than the restored step stay. A later round then resumes from a state that its run has never had.
- Two ranks write one place. LOCAL_RANK is 0 for all workers with --virtual-local-rank. The result was a valid checksum over a mixture.
- The copies exceed the memory limit. The kernel does not refuse then: it kills a worker.

The idea. The agent keeps one sparse memory file for all workers of its node. DDPRUN_SNAPSHOTS names the file and the worker's place in it. A
place has two generations at fixed offsets 1 TiB apart. Memory is used only where something was written. A SIGKILL leaves the file as it is, and
the next worker reads it. A generation is

    header (one page)      step, round, rank, sizes, checksum, and a sequence number that is 0 while the rest changes
    buffers                the bytes of tensor storages and arrays, each at a multiple of 64
    structure              a pickle of everything else, in which tensors and arrays are numbers

A worker overwrites its older generation: it clears the header, copies, and writes the header last. A kill cannot reorder these writes. An
example of a worker that is killed while it copies step 10:

    generation 0   sequence 8, step 8   ->   sequence 0, half of step 10     not read
    generation 1   sequence 9, step 9   ->   sequence 9, step 9              restored

The checksum finds what any other writer has changed. A copy is named by step and round: all ranks take a step in one round, or went back before
it in between. The first snapshot of a worker clears copies that are newer than its restored step. In restore() all ranks send the names of their
copies to rank 0, and decide() chooses one for all. A node without a copy borrows one over the network (_lending.py).

The cost. Each worker holds two copies of its state, which count towards the job's cgroup. From the third snapshot on, 500 MB in 100 tensors take
about 100 ms of CPU. What was tried. A process that receives the state over a socket copies it twice and must be scheduled for each step. A file
in /dev/shm has a name that outlives a killed agent. To clear old copies instead of naming rounds fails when a rank is killed before it clears.

Tensors are copied by their bytes. The script brings torch: this module imports it only to restore tensors. docs/python-scripts.md is the user's
page; docs/internals/decisions/launcher/script-snapshots.md has the reasons."""

import contextlib
import io
import mmap
import os
import pickle
import random
import struct
import sys
import time
import zlib

_MAGIC = b"ddprun\x00\x03"
# Magic, sequence, step, rank, world size, replicated, kind of checksum, size of buffers, size of structure, checksum, round, checksum of
# the header.
_HEADER = struct.Struct("<8sQqIIIIQQQII")
_PAGE = 4096
_APART = 2 ** 40  # bytes from one generation to the next (snapshot_memory.cpp)
_ALIGNED = 64
_WORDS, _CRC = 1, 2  # the checksum of the buffers: the sum of their 64-bit words, or a CRC-32 if the state has no tensors


def _torch():
    return sys.modules.get("torch")


def _aligned(size):
    return -(-size // _ALIGNED) * _ALIGNED


class _Shape:
    """Stands for a tensor whose bytes are not read."""

    def __init__(self, shape, dtype):
        self.shape, self.dtype = tuple(shape), dtype


class _Table:
    """The tensors of one state, and the storages with their bytes. Tensors that share a storage also share one after restore()."""

    def __init__(self):
        self.storages = []  # (offset, bytes)
        self.entries = []  # (storage, dtype, shape, stride, offset in the storage, is a Parameter, requires_grad)
        self.sources = []  # the bytes of each storage
        self.bytes = 0
        self._known = {}  # number of an entry by the id() of its tensor
        self._kept = []  # keeps the tensors alive, so that no id() is reused
        self._places = {}

    def number_of(self, tensor, torch):
        if id(tensor) not in self._known:
            data = tensor.detach()
            if tensor.is_conj() or tensor.is_neg():
                data = data.resolve_conj().resolve_neg()  # a new tensor
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
        else:  # a torch before 2.0
            source = data.as_strided((data.storage().size(),), (1,), 0).view(torch.uint8)
        place = source.data_ptr(), source.numel(), data.device
        if source.numel() and place in self._places:
            return self._places[place]
        self.storages.append((self.bytes, source.numel()))
        self.sources.append(source)
        self.bytes += _aligned(source.numel())
        self._places[place] = len(self.storages) - 1
        return self._places[place]


class _Pickler(pickle.Pickler):
    def __init__(self, file, table):
        super().__init__(file, protocol=5, buffer_callback=self._buffer)
        self._table = table
        self._torch = _torch()
        self.buffers = []

    def persistent_id(self, value):
        torch = self._torch
        if torch is None or not isinstance(value, torch.Tensor):
            if torch is not None and type(value) is getattr(torch, "UntypedStorage", None):
                raise TypeError("a storage is not kept by itself; pass the tensor")
            return None
        plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout == torch.strided and not value.is_quantized
        return self._table.number_of(value, torch) if plain else None

    def _buffer(self, buffer):
        try:
            self.buffers.append(buffer.raw())
        except BufferError:
            return True  # not contiguous: the pickle contains it
        return False


class _Unpickler(pickle.Unpickler):
    def __init__(self, text, buffers, tensor):
        super().__init__(io.BytesIO(text), buffers=buffers)
        self._tensor = tensor

    def persistent_load(self, number):
        return self._tensor(number)


def _header_in(raw):
    magic, sequence, step, rank, world, replicated, kind, buffers, structure, total, round_, check = _HEADER.unpack(raw)
    if magic != _MAGIC or sequence == 0 or check != zlib.crc32(raw[:-4]):
        return None
    return {"sequence": sequence, "step": step, "rank": rank, "world": world, "replicated": bool(replicated), "kind": kind,
            "buffers": buffers, "structure": structure, "sum": total, "round": round_}


def _name_of(header):
    return header["step"], header["round"]


def _size_of(header):
    return _PAGE + header["buffers"] + header["structure"]


def _header_of(header):
    """The header as bytes, with its checksum."""
    raw = _HEADER.pack(_MAGIC, header["sequence"], header["step"], header["rank"], header["world"], int(header["replicated"]), header["kind"],
                       header["buffers"], header["structure"], header["sum"], header["round"], 0)
    return raw[:-4] + struct.pack("<I", zlib.crc32(raw[:-4]))


def _torch_of(header):
    """torch, which is imported if the state has tensors."""
    if header["kind"] == _WORDS:
        import torch  # noqa: F401
    return _torch()


def _on_the_cpu(torch):
    """A context that creates tensors on the CPU, whatever torch.set_default_device() says. torch before 2.0 has no default device."""
    return torch.device("cpu") if hasattr(torch, "set_default_device") else contextlib.nullcontext()


class _Generation:
    """One of the two copies of a worker."""

    def __init__(self, file, place, number):
        self._file = file
        self._begin = (2 * place + number) * _APART
        self._map = None

    def _mapped(self, size):
        if self._map is None or len(self._map) < size:
            self._map = mmap.mmap(self._file, size, offset=self._begin)
        return self._map

    def allocated(self):
        return os.lseek(self._file, self._begin, os.SEEK_HOLE) - self._begin

    def header(self):
        """The header, or None if there is no snapshot. A header that names more bytes than the file has is ignored."""
        header = _header_in(bytes(self._mapped(_PAGE)[:_HEADER.size]))
        if header and _size_of(header) > min(_APART, os.fstat(self._file).st_blocks * 512):
            return None
        return header

    def clear(self):
        self._mapped(_PAGE)[:_PAGE] = bytes(_PAGE)

    def write(self, header, table, arrays, structure):
        """Writes buffers and structure, and the header last."""
        begin = _PAGE + table.bytes
        ends = begin + sum(_aligned(len(array)) for array in arrays)
        size = ends + len(structure)
        memory = self._opened(size)
        torch = _torch()
        if table.sources:
            whole = torch.frombuffer(memory, dtype=torch.uint8, count=size)
            for (offset, length), source in zip(table.storages, table.sources):
                if length:
                    whole[_PAGE + offset:_PAGE + offset + length].copy_(source)
        at = begin
        for array in arrays:
            memory[at:at + len(array)] = array
            at += _aligned(len(array))
        memory[ends:size] = structure
        kind = _WORDS if table.sources else _CRC
        total = self._sum(kind, ends - _PAGE, len(structure))
        memory[:_HEADER.size] = _header_of({**header, "kind": kind, "buffers": ends - _PAGE, "structure": len(structure), "sum": total})

    def _opened(self, size):
        """Clears the header and returns memory of that size for a new snapshot."""
        self.clear()
        if self.allocated() < size:
            os.posix_fallocate(self._file, self._begin, size)
        return self._mapped(size)

    def lent(self, header):
        """(header, body). The body is a view of the memory, without a copy."""
        return _header_of(header), memoryview(self._mapped(_size_of(header)))[_PAGE:_size_of(header)]

    def borrow(self, header, fill):
        """Receives a snapshot of another node: fill(bytes) writes the body. The header is written only if the checksum is right."""
        memory = self._opened(_size_of(header))
        fill(memoryview(memory)[_PAGE:_size_of(header)])
        if not self.is_whole(header):
            raise ValueError("its checksum is wrong")
        memory[:_HEADER.size] = _header_of(header)

    def _sum(self, kind, buffers, structure):
        memory = self._mapped(_PAGE + buffers + structure)
        view = memoryview(memory)
        text = zlib.crc32(view[_PAGE + buffers:_PAGE + buffers + structure])
        if not buffers:
            return text
        if kind == _CRC:
            return zlib.crc32(view[_PAGE:_PAGE + buffers], text)
        torch = _torch()
        words = torch.frombuffer(memory, dtype=torch.int64, offset=_PAGE, count=buffers // 8)
        return (int(words.sum()) + text) % 2 ** 64

    def is_whole(self, header):
        _torch_of(header)
        return self._sum(header["kind"], header["buffers"], header["structure"]) == header["sum"]

    def read(self, header, with_bytes=True):
        """(state, random state). Without bytes, _Shapes stand for tensors."""
        memory = self._mapped(_PAGE + header["buffers"] + header["structure"])
        text = bytes(memoryview(memory)[_PAGE + header["buffers"]:_PAGE + header["buffers"] + header["structure"]])
        storages, entries, arrays, pickled = pickle.loads(text)
        torch = _torch_of(header)
        made, bytes_of = {}, {}

        def storage(number):
            if number not in bytes_of:
                offset, length = storages[number]
                bytes_of[number] = torch.empty(length, dtype=torch.uint8, device="cpu")
                if length:
                    bytes_of[number].copy_(torch.frombuffer(memory, dtype=torch.uint8, offset=_PAGE + offset, count=length))
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
                    one = whole.view(dtype).as_strided(shape, stride, offset).data  # .data: for autograd it is not a view of another tensor
                made[number] = torch.nn.Parameter(one, requires_grad=grad) if is_parameter else one.requires_grad_(grad)
            return made[number]

        def dtype_size(dtype):
            return torch.empty(0, dtype=dtype, device="cpu").element_size()

        def shape_only(number):
            return _Shape(entries[number][2], entries[number][1])

        buffers = [bytearray(memoryview(memory)[_PAGE + at:_PAGE + at + length]) for at, length in arrays]
        with _on_the_cpu(torch):  # a sparse tensor, for example, creates other tensors
            return _Unpickler(pickled, buffers, tensor if with_bytes else shape_only).load()

    def shapes(self, header):
        """The state with _Shapes in place of tensors. If one of its classes cannot be built from _Shapes, it has tensors."""
        try:
            return self.read(header, with_bytes=False)[0]
        except Exception:  # for example a sparse tensor, which is built from tensors
            return self.read(header)[0]


def _random_state():
    state = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), _torch()
    if numpy is not None and "numpy.random" in sys.modules:
        state["numpy"] = numpy.random.get_state()
    if torch is not None:
        state["torch"] = torch.get_rng_state()
        if torch.cuda.is_available() and torch.cuda.is_initialized():
            state["cuda"] = torch.cuda.get_rng_state()
    return state


def _set_random_state(state):
    random.setstate(state["python"])
    if "numpy" in state:
        import numpy
        numpy.random.set_state(state["numpy"])
    if "torch" in state:
        _torch().set_rng_state(state["torch"])
    if "cuda" in state and _torch().cuda.is_available():
        _torch().cuda.set_rng_state(state["cuda"])


def _shape_of(value):
    """The shape of a tensor or an array. None for anything else, also if it has a method of that name."""
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple) else None


def _has_tensors(value, seen=()):
    if id(value) in seen:
        return False  # it contains itself
    if isinstance(value, dict):
        return any(_has_tensors(one, (*seen, id(value))) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_tensors(one, (*seen, id(value))) for one in value)
    return _shape_of(value) is not None


def _difference(found, wanted, path="", seen=()):
    """Describes the first tensor whose shape differs between the snapshot and `wanted`; None: there is no difference. A dict of `wanted` without
    tensors accepts further keys, since an optimizer has no tensors before its first step."""
    if (id(found), id(wanted)) in seen:
        return None  # they contain themselves
    seen = (*seen, (id(found), id(wanted)))
    if isinstance(found, dict) and isinstance(wanted, dict):
        holds_tensors = any(_shape_of(value) is not None for value in wanted.values())
        for key in wanted:
            if key not in found and _has_tensors(wanted[key]):
                return "it has no %s" % (path + str(key))
        for key in found:
            if key not in wanted and holds_tensors:
                return "it has %s" % (path + str(key))
        pairs = [(key, found[key], wanted[key]) for key in wanted if key in found]
    elif isinstance(found, (list, tuple)) and isinstance(wanted, (list, tuple)):
        pairs = list(zip(range(len(wanted)), found, wanted))
    else:
        was, now = _shape_of(found), _shape_of(wanted)
        if was is None or now is None or was == now:
            return None
        return "its %s is %s, and the script's %s" % (path.rstrip("."), "x".join(map(str, was)) or "a number", "x".join(map(str, now)) or "a number")
    for key, one, other in pairs:
        difference = _difference(one, other, "%s%s." % (path, key), seen)
        if difference:
            return difference
    return None


def _limits():
    """Yields (limit, used bytes without reclaimable file pages) for each cgroup of this process that limits memory."""
    def number(path):
        try:
            with open(path) as file:
                return int(file.read())
        except (OSError, ValueError):  # "max": there is no limit
            return None

    def given_back(folder, name):
        try:
            with open(os.path.join(folder, "memory.stat")) as file:
                return sum(int(line.split()[1]) for line in file if line.startswith(name + " "))
        except (OSError, ValueError):
            return 0

    try:
        with open("/proc/self/cgroup") as file:
            lines = file.read().split("\n")
    except OSError:
        return
    for line in lines:
        _, kinds, path = (line.split(":", 2) + ["", ""])[:3]
        if kinds == "":
            root, limit, used, files = "/sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"
        elif "memory" in kinds.split(","):
            root, limit, used, files = "/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"
        else:
            continue
        path = path.strip("/")
        while True:
            folder = os.path.join(root, path)
            most, now = number(os.path.join(folder, limit)), number(os.path.join(folder, used))
            if most is not None and now is not None:
                yield most, now - given_back(folder, files)
            if not path:
                break
            path = os.path.dirname(path)


def room():
    """Bytes of memory that are left for this process and all processes with the same limits."""
    left = sys.maxsize
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    left = int(line.split()[1]) * 1024
    except (OSError, ValueError):
        pass
    return min([left] + [most - used for most, used in _limits()])


class Snapshots:
    """Writes this worker's two generations, and reads those of all workers on its node.

    where: DDPRUN_SNAPSHOTS, which is PATH:PLACE. round_: a number that is unique among the rounds of the job."""

    def __init__(self, where, rank, world_size, round_, say):
        path, _, place = where.rpartition(":")
        if not place.isdigit():
            raise ValueError("it names no place for this worker, so the agent is of another version: install both from one release")
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._place, self._workers = int(place), os.fstat(self._file).st_size // (2 * _APART)
        if self._place >= self._workers:
            raise ValueError("it has %d places, and this worker's is %d" % (self._workers, self._place))
        self._own = self._of(self._place)
        self._rank, self._world_size, self._round = rank, world_size, round_
        self._say = say
        self._off = False
        self._first = True
        self._restored = None  # the step that restore() returned
        self._like = None

    def _of(self, place):
        return [_Generation(self._file, place, number) for number in (0, 1)]

    # ---- snapshot() ----

    def take(self, state, step, replicated):
        if self._off:
            return False
        try:
            return self._take(state, step, replicated)
        except Exception as reason:  # pickling runs code of the state's classes
            self._off = True
            self._say("snapshot() could not copy the state: %s: %s; the job goes on without snapshots of this rank"
                      % (type(reason).__name__, reason))
            return False

    def _take(self, state, step, replicated):
        table, file = _Table(), io.BytesIO()
        pickler = _Pickler(file, table)
        pickler.dump((state, _random_state()))
        arrays, at = [], table.bytes
        for array in pickler.buffers:
            arrays.append((at, len(array)))
            at += _aligned(len(array))
        structure = pickle.dumps((table.storages, table.entries, arrays, file.getvalue()), protocol=5)
        size = _PAGE + at + len(structure)
        if not self._fits(size):
            return False
        if self._first:
            self._forget_what_is_not_ours()
        headers, oldest, newest = self._next_place()
        step = self._next_step(headers) if step is None else step
        header = {"sequence": newest + 1, "step": step, "round": self._round, "rank": self._rank, "world": self._world_size,
                  "replicated": replicated}
        self._own[oldest].write(header, table, pickler.buffers, structure)
        if self._first:
            self._first = False
            if self._rank == 0:
                self._say("snapshots take 2 x %s of memory for each worker" % _in_words(size), with_rank=False)
        return True

    def _next_place(self):
        """(both headers, number of the generation that is older or empty, newest sequence number)."""
        headers = [one.header() for one in self._own]
        oldest = min((0, 1), key=lambda g: headers[g]["sequence"] if headers[g] else 0)
        return headers, oldest, max((one["sequence"] for one in headers if one), default=0)

    def _next_step(self, headers):
        """The step of a snapshot without a step from the script: its number. All ranks count from the restored step, also a rank that has lost
        its own copies."""
        return max([self._restored or 0] + [one["step"] for one in headers if one]) + 1

    def _fits(self, size):
        """Whether both generations of all workers on this node fit into memory."""
        own = sum(max(0, size - one.allocated()) for one in self._own)
        if own == 0:
            return True

        def needed():
            # The blocks of the file include memory that a worker has allocated but not yet written; allocated() does not.
            return max(own, 2 * self._workers * size - 512 * os.fstat(self._file).st_blocks)

        lacks = needed()
        while lacks > (left := room()):
            before, lacks = lacks, needed()
            if lacks == before:
                break
            # Another worker has allocated its memory meanwhile. That memory is no longer left, and no longer needed.
        else:
            return True
        self._off = True
        self._say("no snapshots of this rank: 2 x %s for each of %d workers take %s more, and %s of memory are left; the job goes on without them"
                  % (_in_words(size), self._workers, _in_words(lacks), _in_words(max(0, left))))
        return False

    def _forget_what_is_not_ours(self):
        """Clears copies that an earlier worker left. All are cleared if nothing was restored. Otherwise those that are newer than the restored step,
        and those that serve only another rank: a later round must not resume from a state that this run never had. A replicated copy of the
        restored step stays. It may be the only one until the first new copy is written."""
        for one in self._own:
            header = one.header()
            if header and (self._restored is None or header["step"] > self._restored or not (header["replicated"] or header["rank"] == self._rank)):
                one.clear()

    # ---- restore() ----

    def restore(self, like, agree):
        """agree(offer) -> decision: rank 0 receives the offers of all ranks and decides (_lending.agree)."""
        self._like = like
        decision = agree(self._offer())
        if decision.get("step") is None:
            return None
        name = decision["step"], decision["round"]
        own = self._copy_of(self._own, name, lambda header: header["rank"] == self._rank)
        one, header = own or self._of_all_ranks(name)
        state, random_state = one.read(header)
        if own:
            _set_random_state(random_state)
        else:
            self._say("the state of step %d is another rank's copy; the random state is not restored" % header["step"])
        self._restored = header["step"]
        return state

    def _copy_of(self, generations, name, serves):
        """The first whole copy of that name, with its header, or None. Of other copies only the header is read."""
        for one in generations:
            header = one.header()
            if header and _name_of(header) == name and serves(header) and one.is_whole(header):
                return one, header
        return None

    def _of_all_ranks(self, name):
        """A copy on this node that can serve any rank."""
        found = self._copy_of(self._own + self._others(), name, lambda header: header["replicated"])
        if found is None:
            raise ValueError("the snapshot of step %d is not there any more" % name[0])
        return found

    # ---- from one node to another (_lending) ----

    def copy_to_lend(self, name):
        """(header, body) of a copy on this node. No rank overwrites it while all ranks are in restore()."""
        one, header = self._of_all_ranks(name)
        return one.lent(header)

    def borrow(self, name, rank, host, connect):
        """Receives a copy into this rank's older generation. connect() opens the connection to the lender. Raises OSError or ValueError."""
        began = time.monotonic()
        with contextlib.closing(connect()) as lender:
            header = _header_in(lender.header(_HEADER.size))
            if header is None or _name_of(header) != name or not header["replicated"] or _size_of(header) > _APART:
                raise ValueError("what it sent is no snapshot of that step")
            _, oldest, newest = self._next_place()
            one, size = self._own[oldest], _size_of(header)
            left = room()
            if size - one.allocated() > left:
                raise ValueError("its %s do not fit into the %s of memory that are left" % (_in_words(size), _in_words(max(0, left))))
            header["sequence"] = newest + 1
            one.borrow(header, lender.fill)
        refusal = self._refusal(one, header)
        if refusal:
            one.clear()
            raise ValueError(refusal)
        self._say("the snapshot of step %d came from rank %d at %s: %s in %.1f s" % (name[0], rank, host, _in_words(size), time.monotonic() - began))

    def _others(self):
        return [one for place in range(self._workers) if place != self._place for one in self._of(place)]

    def _offer(self):
        """The names of the copies from which this rank can resume. It verifies only the copies in its own place, and rank 0 combines the offers
        of a node. To verify all places on each rank would cost the square of the workers. Of copies in other places it only reports
        those that it refuses."""
        offer = {"own": [], "replicated": [], "refused": [], "why": "", "able": True}
        looked_at = set()

        def accepts(one, header):
            looked_at.add(_name_of(header))
            refusal = self._refusal(one, header)
            offer["why"] = offer["why"] or refusal
            if refusal and header["replicated"]:
                offer["refused"].append(_name_of(header))
            return not refusal

        for one in self._own:
            header = one.header()
            mine = header is not None and header["rank"] == self._rank
            if header and (mine or header["replicated"]) and one.is_whole(header) and accepts(one, header):
                if mine:
                    offer["own"].append(_name_of(header))
                if header["replicated"]:
                    offer["replicated"].append(_name_of(header))
        for one in self._others():
            header = one.header()
            if header and header["replicated"] and _name_of(header) not in looked_at:
                if self._refusal(one, header) and not one.is_whole(header):
                    continue  # it is damaged, so no rank can use it; another copy of that name may be whole
                accepts(one, header)
        return offer

    def _refusal(self, one, header):
        """Why this rank cannot resume from this copy; "": it can."""
        step = header["step"]
        if header["world"] != self._world_size and not header["replicated"]:
            return "the snapshot of step %d is of %d ranks, and there are %d now: it is not restored" % (step, header["world"], self._world_size)
        try:
            difference = _difference(one.shapes(header), self._like)
        except Exception as reason:  # unpickling runs code of the state's classes
            return "the snapshot of step %d cannot be read: %s: %s; it is not restored" % (step, type(reason).__name__, reason)
        return "the snapshot of step %d has another shape: %s; it is not restored" % (step, difference) if difference else ""


NOTHING = {"own": [], "replicated": [], "refused": [], "why": "", "able": False}  # the offer of a rank without memory for snapshots


def decide(offers):
    """Chooses the copy from which all ranks resume. First choice: the newest copy that each rank has as its own. Second: the newest replicated
    copy that each node has. Third: a copy that nodes without one borrow. Pure; rank 0 calls it with the offers of all ranks. "at" is the node
    of a rank."""
    on_node = _on_nodes(offers)
    for common in (set.intersection(*(_names(offer["own"]) for offer in offers)), set.intersection(*on_node.values())):
        if common:
            return _decided(max(common))
    why = next((offer["why"] for offer in offers if offer["why"]), "")
    if not why and any(offer["own"] or offer["replicated"] for offer in offers):
        unable = [rank for rank, offer in enumerate(offers) if not offer["able"]]
        without = [rank for rank, offer in enumerate(offers) if not offer["own"] and not on_node[offer["at"]]]
        borrowed = _borrowed(offers, on_node)
        if borrowed:
            return borrowed
        if unable:
            why = "rank %d has no memory for snapshots, so that none is restored" % unable[0]
        elif without:
            why = "rank %d has no snapshot, so that none is restored" % without[0]
        else:
            why = "no two ranks have a snapshot of one step: none is restored"
    return {"step": None, "why": why}


def _names(pairs):
    return {(step, round_) for step, round_ in pairs}


def _decided(name, **more):
    return {"step": name[0], "round": name[1], **more}


def _on_nodes(offers):
    """{node: names of the copies that can serve all of its ranks}. All are empty if a rank has no memory for snapshots, since it can read no copy.
    A copy that one rank refuses is left out."""
    found = {offer["at"]: set() for offer in offers}
    if all(offer["able"] for offer in offers):
        for offer in offers:
            found[offer["at"]] |= _names(offer["replicated"])
    refused = set().union(*(_names(offer["refused"]) for offer in offers))
    return {at: names - refused for at, names in found.items()}


def _borrowed(offers, on_node):
    """The decision about lenders and borrowers. One rank of each node with the copy lends it, one rank of each other node borrows it. None: no
    node has a copy."""
    first = {}
    for rank, offer in enumerate(offers):
        first.setdefault(offer["at"], rank)
    newest = max((name for names in on_node.values() for name in names), default=None)
    if newest is None:
        return None
    # A node that was one step behind has the copy before the newest. A node that was away longer has neither.
    names = set().union(*(names for names in on_node.values() if newest in names))
    name = max(names, key=lambda name: (sum(name in there for there in on_node.values()), name))
    return _decided(name, lend=[rank for at, rank in first.items() if name in on_node[at]],
                    borrow=[rank for at, rank in first.items() if name not in on_node[at]])


def _in_words(size):
    for unit, name in ((2 ** 30, "GiB"), (2 ** 20, "MiB"), (2 ** 10, "KiB")):
        if size >= unit:
            return "%.3g %s" % (size / unit, name)
    return "%d B" % size
