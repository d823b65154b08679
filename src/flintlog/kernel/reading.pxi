# Records that queue entries point at, copied out of the log as messages, and the body cut out of a record.

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


@cython.no_gc
cdef class KeptRecord:
    """The bytes of one record; `body` cuts the body out of them. Subclasses keep in it what they have parsed."""

    cdef readonly bytes record
    cdef readonly tuple delay_levels_ms
    cdef public object _parsed, _properties

    def __init__(self, bytes record not None, tuple delay_levels_ms not None=()):
        self.record = record
        self.delay_levels_ms = delay_levels_ms

    def __eq__(self, other):
        if type(self) is not type(other):
            return NotImplemented
        return self.record == (<KeptRecord>other).record and self.delay_levels_ms == (<KeptRecord>other).delay_levels_ms

    def __hash__(self):
        return hash(self.record)

    def __reduce__(self):
        return type(self), (self.record, self.delay_levels_ms)

    @property
    def body(self):
        cdef const uint8_t *data = self.record
        cdef Py_ssize_t size = len(self.record)
        cdef Py_ssize_t place
        cdef int hosts
        if size < MIN_RECORD_SIZE:
            raise FormatError(f"{size} bytes are no record")
        hosts = data[39] >> 4 & 3
        place = BODY_LENGTH_AT + 12 * ((hosts & 1) + (hosts >> 1))
        if place + 4 > size or get32(data + place) < 0 or get32(data + place) > size - place - 4:
            raise FormatError("the body goes past its record")
        return PyBytes_FromStringAndSize(<const char *>data + place + 4, get32(data + place))


cdef tuple NO_ARGUMENTS = ()


cdef inline KeptRecord keep(type kind, bytes record, tuple levels):
    """A message of a kind without the call of its `__init__`, which takes longer than all the rest."""
    cdef KeptRecord kept = <KeptRecord>(<PyTypeObject *>kind).tp_new(kind, <PyObject *>NO_ARGUMENTS, NULL)
    kept.record = record
    kept.delay_levels_ms = levels
    return kept


def collect(
    type kind not None,
    tuple levels not None,
    entries,
    Py_ssize_t position,
    Py_ssize_t stop,
    log,
    int64_t log_base,
    int64_t log_end,
    Py_ssize_t max_count,
    Py_ssize_t max_bytes,
    int check_crc=0,
    home=None,
):
    """Messages of a kind with copies of the records that the entries point at, and where it stopped."""
    cdef bytes record
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
    if not issubclass(kind, KeptRecord):
        raise TypeError(f"{kind.__name__} keeps no record")
    place.topic.at = NULL
    if home is not None:
        read_home(home, &place)
        check_crc = check_crc or CHECK_BODY
    while stop - position >= ENTRY_SIZE and len(found) < max_count:
        entry = queue.data + position
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
        record = PyBytes_FromStringAndSize(<const char *>records.data + start, size)
        found.append(keep(kind, record, levels))
        taken += size
        position += ENTRY_SIZE
        place.queue_offset += 1
    return found, position
