# The growing end of a file. Records go into its map; large batches through the file, of which the tail then has a
# descriptor of its own.

cdef extern from "unistd.h" nogil:
    ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t at)
    int close(int descriptor)

cdef enum:
    LEAST_THROUGH_BYTES = 16 * 1024  # less is sooner copied into pages that are ready
    LEAST_WHERE_DEAR_BYTES = 4 * 1024
    MOST_THROUGH_BYTES = 256 * 1024
    MOST_PREFETCHED_BYTES = 2048


cdef bint write_at(int descriptor, const uint8_t *bytes, Py_ssize_t size, int64_t at) noexcept:
    """Whether the file took the bytes. A process that is killed meanwhile leaves some, from the first one on."""
    cdef ssize_t count
    while size > 0:
        count = pwrite(descriptor, bytes, size, at)
        if count < 0 and errno == EINTR:
            continue
        if count <= 0:
            return False
        bytes += count
        size -= count
        at += count
    return True


@cython.no_gc  # see Held
cdef class Tail:
    """Where the next record or entry of one file goes. Invariant: 0 <= position <= capacity while it is held."""

    cdef Py_buffer view
    cdef bint is_held
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef public int64_t base
    cdef public int64_t store_timestamp
    cdef object given
    cdef int descriptor
    cdef Py_ssize_t least_through
    cdef uint8_t *gathered  # the records that were written through the file last
    cdef Py_ssize_t gathered_at

    def __cinit__(self, buffer, int64_t base, Py_ssize_t position=0):
        self.descriptor = -1
        self.least_through = LEAST_THROUGH_BYTES
        self.gathered_at = -1
        PyObject_GetBuffer(buffer, &self.view, PyBUF_SIMPLE)
        self.is_held = True
        self.given = buffer
        self.data = <uint8_t *>self.view.buf
        self.size = self.view.len
        self.base = base
        self.position = position

    @property
    def buffer(self):
        return self.given

    @property
    def position(self):
        return self.at

    @position.setter
    def position(self, Py_ssize_t position):
        if not (0 <= position <= self.size):
            raise ValueError(f"position {position} is outside of a file of {self.size} bytes")
        self.at = position
        self.gathered_at = -1

    @property
    def capacity(self):
        return self.size

    @property
    def end(self):
        return self.base + self.at

    def release(self):
        """Give the buffer back, so that its mapping can be closed. The position stays readable."""
        if self.is_held:
            self.is_held = False
            self.data = NULL
            self.size = 0
            PyBuffer_Release(&self.view)
        self.given = None
        self.close_file()

    @property
    def has_file(self):
        return self.descriptor >= 0

    @property
    def is_through_file(self):
        """Whether what was appended last was written through the file."""
        return self.gathered_at >= 0

    def take_file(self, int descriptor):
        """From now on write large batches through this descriptor of the buffer's file, and close it with the tail.

        False when it was not taken: the buffer was released, or has one.
        """
        if self.descriptor >= 0 or not self.is_held:
            return False
        self.descriptor = descriptor
        return True

    def prefer_file(self):
        """Pages of the map are dear: write batches through the file that would be small for it otherwise."""
        self.least_through = LEAST_WHERE_DEAR_BYTES

    def leave_file(self):
        """Write no more through the file: close it."""
        self.close_file()

    cdef inline int64_t end_offset(self) noexcept:
        return self.base + self.at

    cdef uint8_t *room_for(self, Py_ssize_t size) noexcept:
        """Where records of so many bytes are put together; `take_written` then brings them to their place."""
        if self.descriptor < 0 or not self.least_through <= size <= MOST_THROUGH_BYTES:
            return self.data + self.at
        if self.gathered == NULL:
            self.gathered = <uint8_t *>malloc(MOST_THROUGH_BYTES)
        return self.data + self.at if self.gathered == NULL else self.gathered

    cdef int take_written(self, const uint8_t *records, Py_ssize_t size, int64_t stored_at) except -1:
        """Records of so many bytes were put together at the place that `room_for` gave: they are the file's last now."""
        self.gathered_at = -1
        if records == self.gathered:
            # The interpreter is kept meanwhile, as it is for a fault of the map: so nobody can release the tail, and let
            # the bytes come late into a file that is another's by then.
            if write_at(self.descriptor, self.gathered, size, self.at):
                self.gathered_at = self.at
            else:
                publish(self.data + self.at, self.gathered, size)
        self.store_timestamp = stored_at
        self.at += size
        return 0

    cdef int close_file(self) noexcept:
        cdef int descriptor = self.descriptor
        self.descriptor = -1
        if descriptor >= 0:
            close(descriptor)
        return 0

    cdef int check_writable(self) except -1:
        if not self.is_held:
            raise StoreClosed("the file's buffer was released")
        if self.view.readonly:
            raise StoreClosed("the file's buffer is read-only")
        return 0

    def __dealloc__(self):
        if self.is_held:
            self.is_held = False
            PyBuffer_Release(&self.view)
        self.close_file()
        free(self.gathered)


cdef inline void prefetch_room(Tail tail, Py_ssize_t size) noexcept:
    """Fetch the memory that a next record of this size would be written to, while its message is being made.

    Whoever made its pages ready ran on another processor, or long ago: without this a put waits for that memory.
    """
    cdef Py_ssize_t line = tail.at
    cdef Py_ssize_t stop = min(tail.at + min(size, <Py_ssize_t>MOST_PREFETCHED_BYTES), tail.size)
    while line < stop:
        prefetch_write(tail.data + line)
        line += 64
