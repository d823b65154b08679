# Records that queue entries point at, copied out of the log, and the body cut out of a record.

cdef enum:
    BODY_LENGTH_AT = 84


cdef struct Home:
    Span topic
    int32_t queue_id
    int64_t queue_offset


cdef int read_home(tuple home, Home *place) except -1:
    """Topic, queue id and queue offset that records must name; the topic's bytes belong to the caller."""
    cdef bytes topic = home[0]
    place.topic.at = topic
    place.topic.size = <int32_t>len(topic)
    place.queue_id = home[1]
    place.queue_offset = home[2]
    return 0


cdef inline bint is_home(const Parts *parts, const Home *place) noexcept:
    return (
        parts.queue_id == place.queue_id
        and parts.queue_offset == place.queue_offset
        and parts.topic.size == place.topic.size
        and memcmp(parts.topic.at, place.topic.at, place.topic.size) == 0
    )


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
    int check_crc=0,
    home=None,
):
    """Copies of the records that the entries in entries[position:stop] point at, and where it stopped."""
    cdef Parts parts
    cdef Home place
    cdef Held queue = Held(entries)
    cdef Held records = Held(log)
    cdef list found = []
    cdef Py_ssize_t taken = 0
    cdef int64_t readable = min(log_end - log_base, <int64_t>records.size)
    cdef int64_t start
    cdef int32_t size
    cdef const uint8_t *entry
    check_range(position, stop, queue.size)
    place.topic.at = NULL
    if home is not None:
        read_home(home, &place)
        check_crc = check_crc or CHECK_BODY
    while stop - position >= ENTRY_SIZE and len(found) < max_count:
        entry = queue.data + position
        if tag_codes is None or get64(entry + 12) in tag_codes:
            size = get32(entry + 8)
            start = get64(entry) - log_base
            if start < 0 or size <= 0 or start > readable or size > readable - start:
                break
            if taken and size > max_bytes - taken:
                break
            if check_crc and record_at(records.data, start, start + size, log_base, check_crc, &parts) != WHOLE:
                break
            if check_crc and get32(records.data + start) != size:
                break
            if place.topic.at != NULL and not is_home(&parts, &place):
                break
            found.append(PyBytes_FromStringAndSize(<const char *>records.data + start, size))
            taken += size
        position += ENTRY_SIZE
        place.queue_offset += 1
    return found, position


cdef class RecordBody:
    """The attribute `body` of a class that keeps a whole record in `record`; each access cuts it out."""

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
