# From a plan to bytes. A record's first 8 bytes (size and magic) are written last, so neither a reader nor a recovery
# after a crash takes a half-written record for a whole one. The records of a batch are completed in their order: a gap
# followed by whole records would look like damage.

cdef inline int32_t tail_size(const Plan *plan) noexcept:
    """The bytes after the body."""
    return 3 + (plan.topic.size > MAX_V1_TOPIC_SIZE) + plan.topic.size + plan.properties_size


cdef inline void write_start(uint8_t *at, const Plan *plan) noexcept:
    put32(at, plan.size)
    put32(at + 4, MAGIC_V2 if plan.topic.size > MAX_V1_TOPIC_SIZE else MAGIC_V1)


cdef inline void write_head(
    uint8_t *at, const Plan *plan, int64_t queue_offset, int64_t physical_offset, int64_t stored_at
) noexcept:
    """Write everything before the body except the first 8 bytes and the CRC."""
    put32(at + 12, plan.queue_id)
    put32(at + 16, plan.flag)
    put64(at + 20, queue_offset)
    put64(at + 28, physical_offset)
    put32(at + 36, plan.sys_flag)
    put64(at + 40, plan.born_timestamp)
    copy_short(at + 48, plan.born_host.at, plan.born_host.size)
    at += 48 + plan.born_host.size
    put64(at, stored_at)
    copy_short(at + 8, plan.store_host.at, plan.store_host.size)
    at += 8 + plan.store_host.size
    put32(at, plan.reconsume_times)
    put64(at + 4, plan.prepared_offset)
    put32(at + 12, plan.body.size)


cdef inline void write_tail(uint8_t *at, const Plan *plan, Facts *facts) noexcept:
    """Write everything after the body. `facts`, if given, are set to what `facts_of` would read from the record."""
    cdef int i
    cdef Span value
    cdef const Pair *pair
    if plan.topic.size > MAX_V1_TOPIC_SIZE:
        put16(at, <int16_t>plan.topic.size)
        at += 2
    else:
        at[0] = <uint8_t>plan.topic.size
        at += 1
    copy_short(at, plan.topic.at, plan.topic.size)
    at += plan.topic.size
    put16(at, <int16_t>plan.properties_size)
    at += 2
    if plan.raw_properties.at != NULL:
        memcpy(at, plan.raw_properties.at, plan.raw_properties.size)
        return
    for i in range(plan.pair_count):
        pair = &plan.pairs[i]
        copy_short(at, pair.name.at, pair.name.size)
        at += pair.name.size
        at[0] = 1
        if pair.is_keys:
            write_keys(at + 1, plan)
        else:
            copy_short(at + 1, pair.value.at, pair.value.size)
        if facts != NULL and pair.value.size > 0:
            value.at, value.size = at + 1, pair.value.size
            note_property(facts, pair.name.at, pair.name.size, value)
        at += pair.value.size + 1
        at[0] = 2
        at += 1


cdef inline void write_keys(uint8_t *at, const Plan *plan) noexcept:
    cdef Py_ssize_t i
    cdef Span text
    for i in range(plan.key_count):
        if i > 0:
            at[0] = c" "
            at += 1
        if not text_of(plan.keys[i], &text):
            return  # cannot be: the plan was made of it
        copy_short(at, text.at, text.size)
        at += text.size


cdef void seal(uint8_t *record, const uint8_t *start, int32_t size) noexcept:
    """Write the CRC property of a record; its first 8 bytes are still in `start` only."""
    cdef uint8_t *at = record + size - CRC_PROPERTY_SIZE
    cdef uint32_t crc = crc_more(crc_more(0xFFFFFFFF, start, 8), record + 8, size - 8 - CRC_PROPERTY_SIZE)
    cdef int i
    crc = ~crc & <uint32_t>0x7FFFFFFF
    memcpy(at, SEAL_NAME, SEAL_NAME_SIZE)
    for i in range(10):
        at[SEAL_NAME_SIZE + i] = <uint8_t>(c"0" + crc % 10)
        crc //= 10
    at[19] = 2


cdef inline void begin(uint8_t *record, const uint8_t *start) noexcept:
    """Make a record visible by its first 8 bytes; the rest of it, and all records before it, are written."""
    write_barrier()
    memcpy(record, start, 8)


cdef inline void write_record(
    uint8_t *at,
    const Plan *plan,
    int64_t queue_offset,
    int64_t physical_offset,
    int64_t stored_at,
    bint with_crc,
    Facts *facts,
) noexcept:
    """Write a planned record and make it visible. `facts` as for `write_tail`."""
    cdef uint8_t *after_body = at + plan.size - tail_size(plan)
    cdef uint8_t start[8]
    write_head(at, plan, queue_offset, physical_offset, stored_at)
    memcpy(after_body - plan.body.size, plan.body.at, plan.body.size)
    put32(at + 8, <int32_t>crc_of(plan.body.at, plan.body.size))
    write_tail(after_body, plan, facts)
    write_start(start, plan)
    if with_crc:
        seal(at, start, plan.size)
    begin(at, start)


cdef inline void publish(uint8_t *at, const uint8_t *records, Py_ssize_t size) noexcept:
    """Copy whole records to their place."""
    cdef int32_t one
    while size > 0:
        one = get32(records)
        memcpy(at + 8, records + 8, one - 8)
        begin(at, records)
        at += one
        records += one
        size -= one


cdef int write_batch(uint8_t *at, list bodies, const uint8_t *frame, const int64_t *starts, bint with_crc) except -1:
    """Assemble planned records at their place."""
    cdef const uint8_t *start
    cdef const uint8_t *content
    cdef uint8_t *record
    cdef Py_ssize_t i
    cdef int32_t size, body_size, after_size, before_size
    for i in range(len(bodies)):
        record = at + (starts[i] - starts[0])
        size = <int32_t>(starts[i + 1] - starts[i])
        body = bodies[i]
        if type(body) is tuple:  # a whole record, from the plain twin
            start = <const uint8_t *>PyBytes_AS_STRING((<tuple>body)[0])
            memcpy(record + 8, start + 8, size - 8)
        else:
            content = <const uint8_t *>PyBytes_AS_STRING(body)
            body_size = <int32_t>PyBytes_GET_SIZE(body)
            memcpy(&after_size, frame, sizeof(int32_t))
            start = frame + sizeof(int32_t)
            before_size = size - after_size - body_size
            memcpy(record + 8, start + 8, before_size - 8)
            memcpy(record + before_size, content, body_size)
            memcpy(record + before_size + body_size, start + before_size, after_size)
            put32(record + 8, <int32_t>crc_of(content, body_size))
            if with_crc:
                seal(record, start, size)
            frame = start + before_size + after_size
        begin(record, start)
    return 0
