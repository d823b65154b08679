# Messages that a client encoded one after another, each: size, magic, CRC, flag, body size, body, properties size,
# properties. Their records are written directly from these bytes.

cdef enum:
    CLIENT_HEAD_SIZE = 20
    CLIENT_FIXED_SIZE = 22


cdef struct ClientPart:
    int32_t size
    int32_t flag
    Span body
    Span properties


cdef inline bint read_client(const uint8_t *at, const uint8_t *end, ClientPart *part) noexcept:
    """The message at this place; False when its parts do not add up."""
    part.size = get32(at) if end - at >= CLIENT_FIXED_SIZE else 0
    if part.size < CLIENT_FIXED_SIZE or part.size > end - at:
        return False
    part.flag = get32(at + 12)
    part.body.at = at + CLIENT_HEAD_SIZE
    part.body.size = get32(at + 16)
    if part.body.size < 0 or part.body.size > part.size - CLIENT_FIXED_SIZE:
        return False
    part.properties.at = part.body.at + part.body.size + 2
    part.properties.size = get16(part.properties.at - 2)
    return part.properties.size == part.size - CLIENT_FIXED_SIZE - part.body.size


cdef bint measure_encoded(const Plan *plan, bint with_crc, Py_ssize_t *total, Py_ssize_t *count) noexcept:
    """Whether the plan's body is a batch that can be written as it is; sets its records' total bytes and their count."""
    cdef ClientPart part
    cdef const uint8_t *at = plan.body.at
    cdef const uint8_t *end = at + plan.body.size
    cdef int32_t added = CRC_PROPERTY_SIZE if with_crc else 0
    cdef int32_t around = plan.size - plan.body.size - plan.properties_size + added
    if plan.pair_count or plan.sys_flag & TRANSACTION_MASK or plan.prepared_offset != 0 or at == end:
        return False
    total[0] = count[0] = 0
    while at < end:
        if not read_client(at, end, &part) or part.properties.size + added > MAX_PROPERTIES_SIZE:
            return False
        if part.properties.size and part.properties.at[part.properties.size - 1] == 0:
            return False
        total[0] += around + part.body.size + part.properties.size
        count[0] += 1
        at += part.size
    return True


cdef void write_encoded(
    uint8_t *into,
    int64_t physical_offset,
    Plan *plan,
    int64_t queue_offset,
    int64_t stored_at,
    bint with_crc,
    long long *starts,
) noexcept:
    """Write a batch that was measured."""
    cdef ClientPart part
    cdef const uint8_t *at = plan.body.at
    cdef const uint8_t *end = at + plan.body.size
    cdef int32_t added = CRC_PROPERTY_SIZE if with_crc else 0
    cdef int32_t around = plan.size - plan.body.size - plan.properties_size + added
    cdef uint8_t *record = into
    while at < end:
        read_client(at, end, &part)
        at += part.size
        plan.flag = part.flag
        plan.body = part.body
        plan.raw_properties = part.properties
        plan.properties_size = part.properties.size + added
        plan.size = around + part.body.size + part.properties.size
        starts[0] = physical_offset + (record - into)
        write_record(record, plan, queue_offset, starts[0], stored_at, with_crc, NULL)
        record += plan.size
        queue_offset += 1
        starts += 1
    starts[0] = physical_offset + (record - into)
