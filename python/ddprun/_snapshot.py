"""ddprun.snapshot() and ddprun.restore(): state that outlives a worker, in memory that the agent owns.

The problem. A killed script must resume from its last step, not from its last checkpoint on disk. The memory of its process is
lost with the process. All ranks must restore the same step, although each of them can be killed at any moment.

How it goes wrong:
- A kill interrupts a copy. The incomplete copy must not be restored.
- Two copies have the same step number but different states. After a restart all ranks repeat step 11. A rank that was one step
  ahead before the restart still has its old copy of step 11, and another rank has the new one.
- Copies that are newer than the restored step remain. A later restart would resume from a state that this run never had.
- Two ranks write to the same slot. With --virtual-local-rank, LOCAL_RANK is 0 for all workers. When LOCAL_RANK was the slot
  number, two ranks wrote a mixture of both states, with a valid checksum.
- The copies exceed the memory limit. The kernel then kills a worker instead of refusing the memory.

The idea. The agent owns one sparse memory file (memfd) for all workers of its node. DDPRUN_SNAPSHOTS contains the path of the
file and the number of the worker's slot (its place). A slot has two generations at fixed offsets, 1 TiB apart. Only the pages
that were written use memory. A SIGKILL of a worker leaves the file unchanged, and the next worker reads it. A generation
contains

    header (one page)      step, round, rank, sizes, checksum, and a sequence number that is 0 while the rest changes
    buffers                the bytes of tensor storages and arrays, each at a multiple of 64
    structure              a pickle of everything else, with numbers in place of tensors and arrays

A worker overwrites its older generation. It clears the header, copies the state, and writes the header last. A kill cannot
reorder these writes, so a valid header always belongs to a complete copy. An example of a worker that is killed while it copies
step 10:

    generation 0   sequence 8, step 8   ->   sequence 0, half of step 10     not restored
    generation 1   sequence 9, step 9   ->   sequence 9, step 9              restored

The checksum detects writes by other processes. A copy is identified by step and round. Two copies with the same step and round
belong together, since a round takes each step once. The first snapshot of a worker clears copies that are newer than its
restored step. In restore() all ranks send the names of their copies to rank 0. On rank 0, decide() (_snapshot_choice.py)
chooses one copy for all ranks. A node without this copy receives it over the network (_lending.py).

The cost. Each worker has two copies of its state, which the kernel charges to the cgroup of the job. From the third snapshot
on, a copy of 500 MB in 100 tensors takes about 100 ms of CPU.

Rejected designs. A separate process that receives the state over a socket copies it twice, and must be scheduled in every step.
A file in /dev/shm has a name that remains when the agent is killed. We also tried to delete old copies instead of naming the
round. That fails if a rank is killed before it deletes its copy.

Tensors are copied as bytes (_snapshot_copy.py). This module imports torch only to restore tensors; a script with tensors has
imported it anyway. docs/python-scripts.md is the user's page, and docs/internals/decisions/launcher/script-snapshots.md has the
measurements."""

import contextlib
import io
import os
import pickle
import random
import sys
import time

from ddprun._free_memory import free_memory, size_text
from ddprun._snapshot_copy import GENERATION_STRIDE, HEADER, PAGE, Generation, Pickler, Table, aligned, header_in, loaded_torch, name_of, size_of


def _random_state():
    state = {"python": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), loaded_torch()
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
        loaded_torch().set_rng_state(state["torch"])
    if "cuda" in state and loaded_torch().cuda.is_available():
        loaded_torch().cuda.set_rng_state(state["cuda"])


def _shape_of(value):
    """Returns the shape of a tensor or an array. Returns None for any other value, even if it has an attribute `shape`."""
    shape = getattr(value, "shape", None)
    return tuple(shape) if isinstance(shape, tuple) else None


def _has_tensors(value, seen=()):
    if id(value) in seen:
        return False  # a container that contains itself is not examined again
    if isinstance(value, dict):
        return any(_has_tensors(one, (*seen, id(value))) for one in value.values())
    if isinstance(value, (list, tuple)):
        return any(_has_tensors(one, (*seen, id(value))) for one in value)
    return _shape_of(value) is not None


def _difference(found, wanted, path="", seen=()):
    """Describes the first tensor whose shape differs between the snapshot (`found`) and the script's state (`wanted`). Returns
    None if no shape differs. If a dict in `wanted` has no tensors, the same dict in `found` may have more keys. An optimizer,
    for example, has no tensors before its first step."""
    if (id(found), id(wanted)) in seen:
        return None  # containers that contain themselves have been compared already
    seen = (*seen, (id(found), id(wanted)))
    if isinstance(found, dict) and isinstance(wanted, dict):
        holds_tensors = any(_shape_of(value) is not None for value in wanted.values())
        for key in wanted:
            if key not in found and _has_tensors(wanted[key]):
                return "%s is missing in the snapshot" % (path + str(key))
        for key in found:
            if key not in wanted and holds_tensors:
                return "%s is missing in the state of the script" % (path + str(key))
        pairs = [(key, found[key], wanted[key]) for key in wanted if key in found]
    elif isinstance(found, (list, tuple)) and isinstance(wanted, (list, tuple)):
        pairs = list(zip(range(len(wanted)), found, wanted))
    else:
        was, now = _shape_of(found), _shape_of(wanted)
        if was is None or now is None or was == now:
            return None
        return "%s is %s in the snapshot, but %s in the state of the script" % (path.rstrip("."), "x".join(map(str, was)) or "a number", "x".join(map(str, now)) or "a number")
    for key, one, other in pairs:
        difference = _difference(one, other, "%s%s." % (path, key), seen)
        if difference:
            return difference
    return None


class Snapshots:
    """Writes the snapshots of this worker, and reads the snapshots of all workers on its node. Each worker has two
    generations: its newest copy and the previous copy.

    `where` is the value of DDPRUN_SNAPSHOTS, which has the form PATH:PLACE. `round_` is a number that is different after each
    start of the workers. `warn` is a function that prints one line.
    """

    def __init__(self, where, rank, world_size, round_, warn):
        path, _, place = where.rpartition(":")
        if not place.isdigit():
            raise ValueError("DDPRUN_SNAPSHOTS contains no slot number, so the agent and this Python package have different versions: install both from the same release")
        self._file = os.open(path, os.O_RDWR | os.O_CLOEXEC)
        self._place, self._workers = int(place), os.fstat(self._file).st_size // (2 * GENERATION_STRIDE)
        if self._place >= self._workers:
            raise ValueError("it has %d slots, but this worker needs slot number %d, counted from 0" % (self._workers, self._place))
        self._own = self._of(self._place)
        self._rank, self._world_size, self._round = rank, world_size, round_
        self._print_line = warn
        self._disabled = False
        self._first = True
        self._restored = None  # the step that restore() has returned, or None
        self._like = None

    def _of(self, place):
        return [Generation(self._file, place, number) for number in (0, 1)]

    # ---- snapshot() ----

    def take(self, state, step, replicated):
        if self._disabled:
            return False
        try:
            return self._take(state, step, replicated)
        except Exception as reason:  # pickling runs code of classes in the state, which can raise any error
            self._disabled = True
            self._print_line("snapshot() could not copy the state: %s: %s; the job continues without snapshots of this rank"
                      % (type(reason).__name__, reason))
            return False

    def _take(self, state, step, replicated):
        table, file = Table(), io.BytesIO()
        pickler = Pickler(file, table)
        pickler.dump((state, _random_state()))
        arrays, at = [], table.bytes
        for array in pickler.buffers:
            arrays.append((at, len(array)))
            at += aligned(len(array))
        structure = pickle.dumps((table.storages, table.entries, arrays, file.getvalue()), protocol=5)
        size = PAGE + at + len(structure)
        if not self._fits(size):
            return False
        if self._first:
            self._clear_stale_copies()
        headers, oldest, newest = self._next_place()
        step = self._next_step(headers) if step is None else step
        header = {"sequence": newest + 1, "step": step, "round": self._round, "rank": self._rank, "world": self._world_size,
                  "replicated": replicated}
        self._own[oldest].write(header, table, pickler.buffers, structure)
        if self._first:
            self._first = False
            if self._rank == 0:
                self._print_line("snapshots take 2 x %s of memory per worker" % size_text(size), with_rank=False)
        return True

    def _next_place(self):
        """Returns both headers, the number of the generation to overwrite, and the newest sequence number. If a generation is
        empty, it is overwritten first. Otherwise the older generation is overwritten."""
        headers = [one.header() for one in self._own]
        oldest = min((0, 1), key=lambda g: headers[g]["sequence"] if headers[g] else 0)
        return headers, oldest, max((one["sequence"] for one in headers if one), default=0)

    def _next_step(self, headers):
        """Returns the step number for a snapshot if the script gave none. It is one more than the newest step in this slot, or
        than the restored step if that is newer. A rank that has lost its own copies therefore continues with the same numbers
        as the other ranks."""
        return max([self._restored or 0] + [one["step"] for one in headers if one]) + 1

    def _fits(self, size):
        """Returns True if there is enough memory for both generations of all workers on this node. Otherwise disables the
        snapshots of this rank."""
        own = sum(max(0, size - one.allocated()) for one in self._own)
        if own == 0:
            return True

        def needed():
            # st_blocks counts all allocated blocks of the file, including blocks without data. allocated() counts only blocks
            # with data.
            return max(own, 2 * self._workers * size - 512 * os.fstat(self._file).st_blocks)

        lacks = needed()
        while lacks > (left := free_memory()):
            before, lacks = lacks, needed()
            if lacks == before:
                break
            # Another worker has just allocated memory for its snapshots. This reduces both the free memory and the memory that
            # is still needed, so compare again.
        else:
            return True
        self._disabled = True
        self._print_line("no snapshots of this rank: two snapshots of %s for each of %d workers need %s more memory, but only %s is free; the job continues without them"
                  % (size_text(size), self._workers, size_text(lacks), size_text(max(0, left))))
        return False

    def _clear_stale_copies(self):
        """Clears copies of earlier workers from which a later restart must not resume. If this worker did not restore a step,
        it clears all copies. If it restored a step, it clears copies of later steps, and copies that only another rank can
        load. A replicated copy of the restored step is kept, since it may be the only one until the first new copy is
        written."""
        for one in self._own:
            header = one.header()
            if header and (self._restored is None or header["step"] > self._restored or not (header["replicated"] or header["rank"] == self._rank)):
                one.clear()

    # ---- restore() ----

    def restore(self, like, agree):
        """Returns the restored state, or None. agree(offer) sends this rank's offer to rank 0, and returns the choice of rank
        0 for all ranks (_lending.agree)."""
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
            self._print_line("the state of step %d is a copy of another rank's state; the random state is not restored" % header["step"])
        self._restored = header["step"]
        return state

    def _copy_of(self, generations, name, serves):
        """Returns the first complete copy with this name, and its header. Returns None if no copy has this name. serves(header)
        returns True if this rank can load the copy. Only the headers of copies with other names are read, not their contents.
        """
        for one in generations:
            header = one.header()
            if header and name_of(header) == name and serves(header) and one.is_whole(header):
                return one, header
        return None

    def _of_all_ranks(self, name):
        """Returns a copy on this node that every rank can load, with its header."""
        found = self._copy_of(self._own + self._others(), name, lambda header: header["replicated"])
        if found is None:
            raise ValueError("the snapshot of step %d no longer exists" % name[0])
        return found

    # ---- copies from one node to another (_lending) ----

    def copy_to_lend(self, name):
        """Returns (header, body) of a copy on this node, to be sent to another node. During the transfer no rank overwrites the
        copy, since all ranks are in restore()."""
        one, header = self._of_all_ranks(name)
        return one.lent(header)

    def borrow(self, name, rank, host, connect):
        """Receives a copy over the network, into the older generation of this rank. connect() opens the connection to the
        lender. Raises OSError or ValueError if this fails."""
        started = time.monotonic()
        with contextlib.closing(connect()) as lender:
            header = header_in(lender.header(HEADER.size))
            if header is None or name_of(header) != name or not header["replicated"] or size_of(header) > GENERATION_STRIDE:
                raise ValueError("it sent data that is not a snapshot of that step")
            _, oldest, newest = self._next_place()
            one, size = self._own[oldest], size_of(header)
            left = free_memory()
            if size - one.allocated() > left:
                raise ValueError("it needs %s of memory, but only %s are left" % (size_text(size), size_text(max(0, left))))
            header["sequence"] = newest + 1
            one.borrow(header, lender.fill)
        refusal = self._refusal(one, header)
        if refusal:
            one.clear()
            raise ValueError(refusal)
        self._print_line("the snapshot of step %d was received from rank %d at %s: %s in %.1f s" % (name[0], rank, host, size_text(size), time.monotonic() - started))

    def _others(self):
        return [one for place in range(self._workers) if place != self._place for one in self._of(place)]

    def _offer(self):
        """Returns the names of the copies from which this rank can resume, and the names of those that it refuses. Each rank
        verifies the checksums in its own slot only, and rank 0 combines the offers of a node. If each rank verified all slots,
        the cost would grow with the square of the number of workers. So a copy in another slot is listed only if this rank
        refuses it."""
        offer = {"own": [], "replicated": [], "refused": [], "why": "", "able": True}
        checked = set()

        def accepts(one, header):
            checked.add(name_of(header))
            refusal = self._refusal(one, header)
            offer["why"] = offer["why"] or refusal
            if refusal and header["replicated"]:
                offer["refused"].append(name_of(header))
            return not refusal

        for one in self._own:
            header = one.header()
            mine = header is not None and header["rank"] == self._rank
            if header and (mine or header["replicated"]) and one.is_whole(header) and accepts(one, header):
                if mine:
                    offer["own"].append(name_of(header))
                if header["replicated"]:
                    offer["replicated"].append(name_of(header))
        for one in self._others():
            header = one.header()
            if header and header["replicated"] and name_of(header) not in checked:
                if self._refusal(one, header) and not one.is_whole(header):
                    continue  # No rank can use this damaged copy. Another copy of the same name may be complete.
                accepts(one, header)
        return offer

    def _refusal(self, one, header):
        """Returns the reason why this rank cannot resume from this copy, or an empty string if it can."""
        step = header["step"]
        if header["world"] != self._world_size and not header["replicated"]:
            return "the snapshot of step %d is not restored, because it is from a round of %d ranks, but there are %d now" % (step, header["world"], self._world_size)
        try:
            difference = _difference(one.shapes(header), self._like)
        except Exception as reason:  # unpickling runs code of classes in the state, which can raise any error
            return "the snapshot of step %d is not restored, because it cannot be read: %s: %s" % (step, type(reason).__name__, reason)
        return "the snapshot of step %d is not restored, because it differs from the state of the script: %s" % (step, difference) if difference else ""
