# Records that queue entries point at, copied out of the log, and the body cut out of a record.

cdef enum:
    BODY_LENGTH_AT = 84


def collect(
    entries,
    Py_ssize_t position,
    Py_ssize_t stop,
    log,
    int64_t log_base,
    int64_t log_end,
    Py_ssize_t max_count,
    Py_ssize_t max_bytes,
    tag_codes=None,
    bint check=False,
):
    """Copies of the records that the entries in entries[position:stop] point at, and where it stopped."""
    cdef Parts parts
    cdef Held queue = Held(entries)
    cdef Held records = Held(log)
    cdef list found = []
    cdef Py_ssize_t taken = 0
    cdef int64_t readable = min(log_end - log_base, <int64_t>records.size)
    cdef int64_t start
    cdef int32_t size
    cdef const uint8_t *entry
    check_range(position, stop, queue.size)
    while stop - position >= ENTRY_SIZE and len(found) < max_count:
        entry = queue.data + position
        if tag_codes is None or get64(entry + 12) in tag_codes:
            size = get32(entry + 8)
            start = get64(entry) - log_base
            if start < 0 or size <= 0 or start > readable or size > readable - start:
                break
            if taken and size > max_bytes - taken:
                break
            if check and record_at(records.data, start, start + size, log_base, True, &parts) != WHOLE:
                break
            if check and get32(records.data + start) != size:
                break
            found.append(PyBytes_FromStringAndSize(<const char *>records.data + start, size))
            taken += size
        position += ENTRY_SIZE
    return found, position


cdef class RecordBody:
    """The attribute `body` of a class that keeps a whole record in `record`: cut out when it is asked for."""

    def __get__(self, instance, owner):
        cdef bytes record
        cdef const uint8_t *data
        cdef Py_ssize_t size, place
        cdef int hosts
        if instance is None:
            return self
        record = instance.record
        data = record
        size = len(record)
        if size < MIN_RECORD_SIZE:
            raise FormatError(f"{size} bytes are no record")
        hosts = data[39] >> 4 & 3
        place = BODY_LENGTH_AT + 12 * ((hosts & 1) + (hosts >> 1))
        if place + 4 > size or get32(data + place) < 0 or get32(data + place) > size - place - 4:
            raise FormatError("the body goes past its record")
        return record[place + 4 : place + 4 + get32(data + place)]
