# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, nonecheck=False, initializedcheck=False
"""The fast kernel: the same names, arguments and results as the plain twin in `reference`.

    native.pyx      names, buffers, hashes and sums
    record.pxi      one record in a buffer: its parts, its properties
    scan.pxi        scan, count_entries, find_record, written_end
    plan.pxi        how a message will be written
    writing.pxi     from a plan to bytes
    encoder.pxi     Encoder
    fast_dispatch.pxi        FastDispatch, index_insert
    keys.pxi        pack_keys, index_fill, index_link, index_entries
    fast_put.pxi    FastPut
    columns.pxi     decode, decode_at
    claims.pxi      claim, unclaimed, named_records, find_keys
    reading.pxi     collect, KeptRecord
    checks.pxi      queue_runs, match_index, check_chains
    bytes.h crc32.h reading and writing of bytes, for all of them

Invariant: a byte is read or written only inside of a buffer that is held, at a position that was checked
against its size. A length that was read from a buffer is checked against the bytes that are there before it is used.
A message that is unusual or wrong is left to the plain twin, which encodes it or raises the error.
Loops over ranges of the log release the GIL; a single put holds it.
"""

import os
from types import BuiltinMethodType

cimport cython
from cpython cimport array
from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_Update
from cpython.object cimport PyObject, PyTypeObject
from libc.errno cimport EINTR, errno
from libc.stdint cimport INT32_MAX, INT32_MIN, int16_t, int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc, realloc
from libc.string cimport memchr, memcmp, memcpy, memset
from posix.types cimport off_t

from flintlog.errors import DiskFull, FormatError, InvalidMessage, StoreClosed
from flintlog.format.java import decode_text, parse_int
from flintlog.kernel.reference import __all__ as PLAIN_NAMES
from flintlog.kernel.reference.columns import MAX_DECODED_BYTES, Decoded
from flintlog.kernel.reference.encoder import Encoder as PlainEncoder
from flintlog.kernel.reference.encoder import check_in_batch
from flintlog.kernel.types import ROW, ChainFault, Column, DispatchStop, QueueRun, Row, ScanStop

cdef extern from "crc32.h" nogil:
    void crc_prepare()
    uint32_t crc_more(uint32_t crc, const uint8_t *data, size_t size)
    uint32_t crc_of(const uint8_t *data, size_t size)

cdef extern from "bytes.h" nogil:
    int16_t get16(const uint8_t *at)
    int32_t get32(const uint8_t *at)
    int64_t get64(const uint8_t *at)
    void put16(uint8_t *at, int16_t value)
    void put32(uint8_t *at, int32_t value)
    void put64(uint8_t *at, int64_t value)
    void write_barrier()
    void prefetch_write(const void *at)
    void prefetch_read(const void *at)
    int64_t entry_offset(int64_t queue_offset)
    int64_t wrapping_add(int64_t a, int64_t b)
    uint64_t inverse_of(uint32_t d)
    uint32_t remainder_of(uint32_t a, uint64_t inverse, uint32_t d)
    uint32_t hash_latin1(uint32_t h, const uint8_t *at, size_t size)
    uint32_t hash_units(uint32_t h, const void *at, size_t size)
    uint32_t hash_points(uint32_t h, const void *at, size_t size)
    uint32_t hash_utf8(uint32_t h, const uint8_t *at, size_t size)
    int32_t index_hash_of(uint32_t h)
    bint is_ascii(const uint8_t *at, size_t size)
    size_t copy_utf8(uint8_t *out, const uint8_t *at, size_t size)
    void copy_short(uint8_t *to, const uint8_t *from_, size_t size)
    bint has_control(const uint8_t *at, size_t size)
    bint has_separator(const uint8_t *at, size_t size)
    const uint8_t *find_separator(const uint8_t *at, const uint8_t *end, const uint8_t *limit, bint names)
    uint64_t table_hash(const uint8_t *at, size_t size, uint64_t seed)
    int put_decimal(uint8_t *out, int32_t value)
    void put_hex(uint8_t *out, const uint8_t *at, size_t size)
    int put_host(uint8_t *out, const uint8_t *packed, int packed_size)

cdef extern from "Python.h":
    bint PyUnicode_CheckExact(PyObject *text)
    bint PyUnicode_IS_COMPACT_ASCII(PyObject *text)
    Py_ssize_t PyUnicode_GET_LENGTH(PyObject *text)
    int PyUnicode_KIND(PyObject *text)
    void *PyUnicode_DATA(PyObject *text)
    const char *PyUnicode_AsUTF8AndSize(PyObject *text, Py_ssize_t *size) except NULL
    Py_ssize_t PY_SSIZE_T_MAX

crc_prepare()

__all__ = PLAIN_NAMES
name = "native"

cdef uint64_t table_seed = int.from_bytes(os.urandom(8), "little")
cdef tuple SCAN_STOPS = tuple(ScanStop)
cdef tuple DISPATCH_STOPS = tuple(DispatchStop)

cdef enum:
    ENTRY_SIZE = 20
    END_RESERVE = 8


# Not garbage-collected: it refers only to a buffer, so it closes no cycle. Cython's own clearing would drop the
# reference in a Py_buffer without releasing the buffer. CPython before 3.11.9 and 3.12.3 also crashes when it clears a
# memoryview whose buffer is held (gh-77894); with no_gc the collector leaves both alone.
@cython.no_gc
cdef class Held:
    """A buffer held for as long as this lives, or until `drop`."""

    cdef Py_buffer view
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef bint is_held

    def __cinit__(self, buffer, bint writable=False):
        PyObject_GetBuffer(buffer, &self.view, PyBUF_WRITABLE if writable else PyBUF_SIMPLE)
        self.is_held = True
        self.data = <uint8_t *>self.view.buf
        self.size = self.view.len

    cdef void drop(self) noexcept:
        if self.is_held:
            self.is_held = False
            self.data = NULL
            self.size = 0
            PyBuffer_Release(&self.view)

    def __dealloc__(self):
        self.drop()


cdef class Block:
    """Memory that a loop filled, offered as a read-only buffer."""

    cdef uint8_t *data
    cdef Py_ssize_t size

    def __getbuffer__(self, Py_buffer *view, int flags):
        if flags & PyBUF_WRITABLE:
            raise BufferError("the columns and rows of a log are read-only")
        view.buf = self.data if self.data != NULL else <void *>b""
        view.len = self.size
        view.readonly = 1
        view.itemsize = 1
        view.format = NULL
        view.ndim = 1
        view.shape = &self.size
        view.strides = NULL
        view.suboffsets = NULL
        view.internal = NULL
        view.obj = self

    def __releasebuffer__(self, Py_buffer *view):
        pass

    def __len__(self):
        return self.size

    def __dealloc__(self):
        free(self.data)


cdef struct Growing:
    uint8_t *data
    size_t size
    size_t room


cdef inline uint8_t *more(Growing *growing, size_t size) noexcept nogil:
    """Room for `size` more bytes, not yet counted in `growing.size`; NULL when there is no memory."""
    if growing.room - growing.size < size or growing.data == NULL:
        return _grown(growing, size)
    return growing.data + growing.size


cdef uint8_t *_grown(Growing *growing, size_t size) noexcept nogil:
    cdef size_t room = growing.room + growing.room // 2 + size + 256
    cdef uint8_t *data = <uint8_t *>realloc(growing.data, room)
    if data == NULL:
        return NULL
    growing.data = data
    growing.room = room
    return data + growing.size


cdef Block block_of(Growing *growing):
    """Hand the memory over to a Block."""
    cdef Block block = Block()
    block.data = growing.data
    block.size = growing.size
    growing.data = NULL
    growing.size = growing.room = 0
    return block


cdef inline int check_range(Py_ssize_t start, Py_ssize_t stop, Py_ssize_t size) except -1:
    if not (0 <= start <= stop <= size):
        raise ValueError(f"the range {start} to {stop} is not inside of a buffer of {size} bytes")
    return 0


include "tail.pxi"


cdef class QueueEnd:
    """The growing end of one consume queue: its last file, and the end of the last record that has an entry."""

    cdef public Tail tail
    cdef public int64_t max_physical_offset
    cdef public int64_t record_bytes

    def __init__(self, Tail tail, int64_t max_physical_offset=-1):
        self.tail = tail
        self.max_physical_offset = max_physical_offset


cdef uint32_t hash_text(str text) noexcept:
    cdef PyObject *raw = <PyObject *>text
    cdef Py_ssize_t length = PyUnicode_GET_LENGTH(raw)
    cdef int kind = PyUnicode_KIND(raw)
    if kind == 1:
        return hash_latin1(0, <const uint8_t *>PyUnicode_DATA(raw), length)
    if kind == 2:
        return hash_units(0, PyUnicode_DATA(raw), length)
    return hash_points(0, PyUnicode_DATA(raw), length)


def index_hash(str key not None):
    """The hash of an index key: absolute, and 0 where Java's `Math.abs` stays negative."""
    return index_hash_of(hash_text(key))


def crc32(buffer):
    """CRC-32 without its top bit, as records hold it."""
    cdef Held held
    cdef uint32_t value
    if type(buffer) is bytes:
        return crc_of(<const uint8_t *>PyBytes_AS_STRING(buffer), PyBytes_GET_SIZE(buffer))
    held = Held(buffer)
    with nogil:
        value = crc_of(held.data, held.size)
    return value


include "record.pxi"
include "scan.pxi"
include "plan.pxi"
include "writing.pxi"
include "client_batch.pxi"
include "encoder.pxi"
include "fast_dispatch.pxi"
include "keys.pxi"
include "fast_put.pxi"
include "columns.pxi"
include "claims.pxi"
include "reading.pxi"
include "checks.pxi"
