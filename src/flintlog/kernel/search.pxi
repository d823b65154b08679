# Finds intact records, and the end of the written bytes, in bytes of unknown content.

cdef extern from "string.h" nogil:
    void *memchr(const void *at, int byte, size_t size)


def find_record(buffer, Py_ssize_t start, Py_ssize_t stop, int64_t base):
    """The first place in buffer[start:stop] where an intact record begins; -1 when there is none.

    A record with DLedger's head begins with it.
    """
    cdef Held held = Held(buffer)
    cdef Py_ssize_t found
    check_range(start, stop, held.size)
    with nogil:
        found = first_record(held.data, start, stop, base)
    return found


cdef Py_ssize_t first_record(const uint8_t *data, Py_ssize_t start, Py_ssize_t stop, int64_t base) noexcept nogil:
    cdef Parts parts
    cdef const uint8_t *at
    cdef Py_ssize_t place, head
    cdef Py_ssize_t magic_at = start + 4
    while magic_at + 4 <= stop:
        # Both magic codes begin with this byte.
        at = <const uint8_t *>memchr(data + magic_at, 0xDA, stop - magic_at - 3)
        if at == NULL:
            return -1
        place = at - data - 4
        magic_at = place + 5
        if at[1] == 0xA3 and at[2] == 0x20 and record_at(data, place, stop, base, True, &parts) == WHOLE:
            head = place - LEDGER_HEAD_SIZE
            if head < 0 or ledger_head_at(data + head, stop - head, wrapping_add(base, head)) != WHOLE:
                return place
            if head >= start:
                return head
            magic_at = place + parts.size + 4
    return -1


def written_end(buffer, Py_ssize_t start, Py_ssize_t stop):
    """The place after the last non-zero byte of buffer[start:stop]; `start` when all are zero."""
    cdef Held held = Held(buffer)
    cdef Py_ssize_t end = stop
    cdef uint64_t word
    check_range(start, stop, held.size)
    with nogil:
        while end - start >= 8:
            memcpy(&word, held.data + end - 8, 8)
            if word != 0:
                break
            end -= 8
        while end > start and held.data[end - 1] == 0:
            end -= 1
    return end
