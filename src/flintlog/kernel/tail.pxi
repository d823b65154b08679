# The growing end of a file. Records are written into its map, and large batches through a descriptor of the file, which
# the tail owns.

cdef extern from "unistd.h" nogil:
    ssize_t pwrite(int descriptor, const void *bytes, size_t size, off_t at)
    int close(int descriptor)

cdef enum:
    LEAST_THROUGH_BYTES = 16 * 1024  # copying fewer bytes into prepared pages is faster
    LEAST_WHERE_DEAR_BYTES = 4 * 1024
    MOST_THROUGH_BYTES = 256 * 1024
    MOST_PREFETCHED_BYTES = 2048


cdef bint write_at(int descriptor, const uint8_t *bytes, Py_ssize_t size, int64_t at) noexcept:
    """Whether all bytes were written. A process that is killed meanwhile leaves a prefix of them."""
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
    """Where the next record or entry of one file goes. Invariant: 0 <= position <= capacity while it has a buffer."""

    cdef Py_buffer view
    cdef bint is_held
    cdef uint8_t *data
    cdef Py_ssize_t size
    cdef Py_ssize_t at
    cdef public int64_t base
    cdef public int64_t store_timestamp
    cdef public Py_ssize_t allocated
    cdef public object allocate
    cdef object given
    cdef int descriptor
    cdef Py_ssize_t least_through
    cdef uint8_t *gathered  # the records that were last written through the file
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
        self.allocated = self.size
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
            self.allocated = 0
            PyBuffer_Release(&self.view)
        self.given = self.allocate = None
        self.close_file()

    @property
    def has_file(self):
        return self.descriptor >= 0

    @property
    def is_through_file(self):
        """Whether the last append was written through the file."""
        return self.gathered_at >= 0

    def take_file(self, int descriptor):
        """From now on write large batches through this descriptor of the buffer's file, and close it with the tail.

        False when it was not taken: the buffer was released, or the tail has a descriptor already.
        """
        if self.descriptor >= 0 or not self.is_held:
            return False
        self.descriptor = descriptor
        return True

    def prefer_file(self):
        """Write smaller batches through the file too: pages of this map are expensive."""
        self.least_through = LEAST_WHERE_DEAR_BYTES

    def leave_file(self):
        """Stop writing through the file, and close the descriptor."""
        self.close_file()

    def make_room(self, Py_ssize_t size):
        """Get space on the disk for so many bytes at the position. Raises `DiskFull`, and nothing is changed."""
        if self.at + size > self.allocated and self.allocate is not None:
            self.allocated = self.allocate(self.at + size)

    cdef inline bint lacks_room(self, Py_ssize_t size) noexcept:
        """Whether records of this total size fit into the file, and there is no space on the disk for them yet."""
        return self.allocated - self.at < size + END_RESERVE <= self.size - self.at

    cdef inline int64_t end_offset(self) noexcept:
        return self.base + self.at

    cdef uint8_t *room_for(self, Py_ssize_t size) noexcept:
        """The place to assemble records of this total size; `take_written` then appends them."""
        if self.descriptor < 0 or not self.least_through <= size <= MOST_THROUGH_BYTES:
            return self.data + self.at
        if self.gathered == NULL:
            self.gathered = <uint8_t *>malloc(MOST_THROUGH_BYTES)
        return self.data + self.at if self.gathered == NULL else self.gathered

    cdef int take_written(self, const uint8_t *records, Py_ssize_t size, int64_t stored_at) except -1:
        """Append records that were assembled at the place from `room_for`."""
        self.gathered_at = -1
        if records == self.gathered:
            # The GIL is held meanwhile, as it is for a page fault of the map. Without it another thread could release
            # the tail, and the bytes would land in a file that has been reused.
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
    """Prefetch the memory of a next record of this size, while the caller makes its message.

    The pages were prepared on another processor, or long ago; without this the next put waits for memory.
    """
    cdef Py_ssize_t line = tail.at
    cdef Py_ssize_t stop = min(tail.at + min(size, <Py_ssize_t>MOST_PREFETCHED_BYTES), tail.size)
    while line < stop:
        prefetch_write(tail.data + line)
        line += 64
