# One record in a buffer: its parts, every length checked, and the facts in its properties.

cdef enum:
    MAGIC_V1 = -626843481
    MAGIC_V2 = -626843477
    BLANK_MAGIC = -875286124
    MIN_RECORD_SIZE = 91
    LEDGER_MAGIC = 1
    LEDGER_BLANK_MAGIC = -1
    LEDGER_HEAD_SIZE = 48
    TRANSACTION_MASK = 0xC
    ROLLBACK = 0xC
    BORN_HOST_V6 = 0x10
    STORE_HOST_V6 = 0x20
    INNER_BATCH_FLAG = 0x80
    MARK_MULTI_DISPATCH = 1
    MARK_INNER_BATCH = 2
    LIMIT = 0
    BLANK = 1
    NO_RECORD = 2
    BAD_LENGTH = 3
    BAD_CRC = 4
    BAD_OFFSET = 5
    SHORT = 6
    BAD_RECORD_CRC = 7
    NO_RECORD_CRC = 8
    WHOLE = 9  # not a ScanStop: there is a record
    CHECK_BODY = 1  # values of `types.Crc`
    CHECK_RECORD = 2
    CHECK_FORCED = 3
    CRC_PROPERTY_SIZE = 20
    SEAL_NAME_SIZE = 9

cdef enum:
    MAX_LEVEL_TEXT = 64

cdef const uint8_t *SEAL_NAME = <const uint8_t *>b"__CRC32#\x01"


cdef struct Span:
    const uint8_t *at
    int32_t size


cdef struct Parts:
    const uint8_t *start
    int32_t head  # the size of DLedger's head before the record, or 0
    int32_t size
    int32_t magic
    int32_t sys_flag
    int32_t queue_id
    int64_t physical_offset
    int64_t queue_offset
    int64_t store_timestamp
    Span born_host
    Span store_host
    const uint8_t *retries  # reconsume times, prepared transaction offset
    Span body
    Span topic
    Span properties


cdef struct Facts:
    Span tags
    Span uniq_key
    Span keys
    Span delay
    bint has_dispatch
    bint has_queue_offsets


cdef struct Levels:
    int64_t *delays_ms
    int32_t count


cdef int ledger_head_at(const uint8_t *start, Py_ssize_t remaining, int64_t place) noexcept nogil:
    """WHOLE when DLedger's head of the record after it is here; else a ScanStop."""
    cdef int32_t magic = get32(start)
    cdef int32_t body_size
    if magic == LEDGER_BLANK_MAGIC:
        return BLANK if get32(start + 4) >= 8 else NO_RECORD
    if magic != LEDGER_MAGIC:
        return NO_RECORD
    if remaining < LEDGER_HEAD_SIZE:
        return SHORT
    body_size = get32(start + 44)
    if body_size < MIN_RECORD_SIZE or get32(start + 4) - LEDGER_HEAD_SIZE != body_size:
        return BAD_LENGTH
    if get64(start + 8) < 0 or get64(start + 16) < 0 or get64(start + 24) != place:
        return BAD_OFFSET
    if remaining - LEDGER_HEAD_SIZE < body_size:
        return SHORT
    return WHOLE if get32(start + LEDGER_HEAD_SIZE) == body_size else BAD_LENGTH


cdef bint has_record_crc(const uint8_t *end) noexcept nogil:
    """Whether a record that ends here ends in a CRC property, even with one damaged byte or after a torn write."""
    cdef const uint8_t *at = end - CRC_PROPERTY_SIZE
    cdef int written = CRC_PROPERTY_SIZE
    cdef int i, differing = 0
    for i in range(SEAL_NAME_SIZE):
        differing += at[i] != SEAL_NAME[i]
    if differing <= 1:
        return True
    # A torn write leaves zeros. No whole record ends in this many: its topic comes before its properties.
    while written > 0 and at[written - 1] == 0:
        written -= 1
    return written <= SEAL_NAME_SIZE and memcmp(at, SEAL_NAME, written) == 0


cdef int check_record_crc(const Parts *parts, int check) noexcept nogil:
    """WHOLE when a record matches its CRC property, or needs none; else a ScanStop."""
    cdef const uint8_t *end = parts.start + parts.size
    cdef const uint8_t *digits = end - CRC_PROPERTY_SIZE + SEAL_NAME_SIZE
    cdef uint32_t crc
    cdef int i
    if not has_record_crc(end):
        return NO_RECORD_CRC if check == CHECK_FORCED else WHOLE
    if memcmp(end - CRC_PROPERTY_SIZE, SEAL_NAME, SEAL_NAME_SIZE) != 0 or end[-1] != 2:
        return BAD_RECORD_CRC
    crc = crc_of(parts.start, parts.size - CRC_PROPERTY_SIZE)
    for i in range(10):
        if digits[i] != c"0" + crc % 10:
            return BAD_RECORD_CRC
        crc //= 10
    return WHOLE


cdef inline int record_at(
    const uint8_t *data, Py_ssize_t position, Py_ssize_t stop, int64_t base, int check_crc, Parts *parts
) noexcept nogil:
    """WHOLE when data[position:stop] begins with a record that lies in its own place, else a ScanStop.

    DLedger's head may precede it. The place after the record is `parts.head + parts.size` further.
    """
    cdef Py_ssize_t remaining = stop - position
    cdef const uint8_t *start = data + position
    cdef int32_t left, length
    cdef int reason
    cdef const uint8_t *at
    if remaining < 8:
        return SHORT if remaining > 0 else LIMIT
    parts.head = 0
    if get32(start) == LEDGER_MAGIC:
        reason = ledger_head_at(start, remaining, wrapping_add(base, position))
        if reason != WHOLE:
            return reason
        parts.head = LEDGER_HEAD_SIZE
        position += LEDGER_HEAD_SIZE
        remaining -= LEDGER_HEAD_SIZE
        start += LEDGER_HEAD_SIZE
    parts.start = start
    parts.size = get32(start)
    parts.magic = get32(start + 4)
    if parts.magic != MAGIC_V1 and parts.magic != MAGIC_V2:
        if parts.head > 0:
            return NO_RECORD
        return BLANK if parts.magic == BLANK_MAGIC else ledger_head_at(start, remaining, 0)
    if parts.size < MIN_RECORD_SIZE:
        return BAD_LENGTH
    if parts.size > remaining:
        return SHORT
    prefetch_read(start + parts.size)
    parts.queue_id = get32(start + 12)
    parts.queue_offset = get64(start + 20)
    parts.physical_offset = get64(start + 28)
    parts.sys_flag = get32(start + 36)
    parts.born_host.at = start + 48
    parts.born_host.size = 20 if parts.sys_flag & BORN_HOST_V6 else 8
    parts.store_host.size = 20 if parts.sys_flag & STORE_HOST_V6 else 8
    # `left` is what body, topic and properties may still take.
    left = parts.size - MIN_RECORD_SIZE + 16 - parts.born_host.size - parts.store_host.size
    if parts.magic == MAGIC_V2:
        left -= 1
    if left < 0:
        return BAD_LENGTH
    at = parts.born_host.at + parts.born_host.size
    parts.store_timestamp = get64(at)
    parts.store_host.at = at + 8
    parts.retries = parts.store_host.at + parts.store_host.size
    length = get32(parts.retries + 12)
    if length < 0 or length > left:
        return BAD_LENGTH
    parts.body.at = parts.retries + 16
    parts.body.size = length
    left -= length
    at = parts.body.at + length
    if parts.magic == MAGIC_V1:
        length = <signed char>at[0]
        at += 1
    else:
        length = get16(at)
        at += 2
    if length < 0 or length > left:
        return BAD_LENGTH
    parts.topic.at = at
    parts.topic.size = length
    left -= length
    at += length
    if get16(at) != left:
        return BAD_LENGTH
    parts.properties.at = at + 2
    parts.properties.size = left
    if parts.physical_offset != wrapping_add(base, position):
        return BAD_OFFSET
    # Java never looks at the sum of an empty body.
    if check_crc and parts.body.size > 0 and <int32_t>crc_of(parts.body.at, parts.body.size) != get32(start + 8):
        return BAD_CRC
    return WHOLE if check_crc < CHECK_RECORD else check_record_crc(parts, check_crc)


cdef inline void note_property(Facts *facts, const uint8_t *name, Py_ssize_t name_size, Span value) noexcept nogil:
    if name_size == 4:
        if memcmp(name, b"TAGS", 4) == 0:
            facts.tags = value
        elif memcmp(name, b"KEYS", 4) == 0:
            facts.keys = value
    elif name_size == 8:
        if memcmp(name, b"UNIQ_KEY", 8) == 0:
            facts.uniq_key = value
    elif name_size == 5:
        if memcmp(name, b"DELAY", 5) == 0:
            facts.delay = value
    elif name_size == 20:
        if memcmp(name, b"INNER_MULTI_DISPATCH", 20) == 0:
            facts.has_dispatch = True
    elif name_size == 24:
        if memcmp(name, b"INNER_MULTI_QUEUE_OFFSET", 24) == 0:
            facts.has_queue_offsets = True


cdef inline bint next_property(
    const uint8_t **place, const uint8_t *end, const uint8_t *limit, Span *name, Span *value
) noexcept nogil:
    """The next pair that has a name and a value; False at the end."""
    cdef const uint8_t *at = place[0]
    cdef const uint8_t *middle
    cdef const uint8_t *close
    while at < end:
        middle = find_separator(at, end, limit, True)
        if middle == end or middle[0] == 2:
            at = middle + 1
            continue
        close = find_separator(middle + 1, end, limit, False)
        if middle > at and close > middle + 1:
            name.at = at
            name.size = <int32_t>(middle - at)
            value.at = middle + 1
            value.size = <int32_t>(close - middle - 1)
            place[0] = close + 1
            return True
        at = close + 1
    return False


cdef inline void facts_of(const Parts *parts, const uint8_t *limit, Facts *facts) noexcept nogil:
    """The facts in the properties; `limit` is the end of the readable bytes."""
    cdef const uint8_t *at = parts.properties.at
    cdef const uint8_t *end = at + parts.properties.size
    cdef Span name
    cdef Span value
    memset(facts, 0, sizeof(Facts))
    while next_property(&at, end, limit, &name, &value):
        note_property(facts, name.at, name.size, value)


cdef inline int32_t marks_of(const Parts *parts, const Facts *facts) noexcept nogil:
    cdef int32_t marks = 0
    if parts.sys_flag & INNER_BATCH_FLAG:
        marks |= MARK_INNER_BATCH
    if facts.has_dispatch and facts.has_queue_offsets:
        marks |= MARK_MULTI_DISPATCH
    return marks


cdef inline int64_t tags_code_of(const Parts *parts, const Facts *facts, const Levels *levels) noexcept nogil:
    cdef int32_t level
    if facts.delay.at != NULL and levels.count > 0 and parts.topic.size == 19:
        if memcmp(parts.topic.at, b"SCHEDULE_TOPIC_XXXX", 19) == 0:
            level = delay_level(facts.delay)
            if level > levels.count:
                level = levels.count
            if level > 0:
                return wrapping_add(parts.store_timestamp, levels.delays_ms[level - 1])
    return <int32_t>hash_utf8(0, facts.tags.at, facts.tags.size)


cdef int32_t delay_level(Span text) noexcept nogil:
    """The level as `Integer.parseInt` reads it; 0 when it is no number."""
    cdef int64_t value = 0
    cdef int32_t i = 0
    cdef bint is_negative
    if text.size > MAX_LEVEL_TEXT or not is_ascii(text.at, text.size):
        return _rare_delay_level(text)
    is_negative = text.at[0] == c"-"
    if is_negative or text.at[0] == c"+":
        i = 1
    if i == text.size:
        return 0
    while i < text.size:
        if text.at[i] < c"0" or text.at[i] > c"9":
            return 0
        value = value * 10 + (text.at[i] - c"0")
        if value > <int64_t>INT32_MAX + is_negative:
            return 0
        i += 1
    return 0 if is_negative else <int32_t>value


cdef int32_t _rare_delay_level(Span text) noexcept with gil:
    # Java knows the digits of all scripts.
    try:
        return parse_int(decode_text(PyBytes_FromStringAndSize(<const char *>text.at, text.size)))
    except FormatError:
        return 0


cdef inline int32_t *add_hash(Growing *hashes, uint32_t h) noexcept nogil:
    cdef int32_t *place = <int32_t *>more(hashes, 4)
    if place != NULL:
        place[0] = index_hash_of(h)
        hashes.size += 4
    return place


cdef inline uint32_t prefix_of(Span topic) noexcept nogil:
    """The hash of `topic#`, from which the hash of each of its keys goes on."""
    return hash_utf8(0, topic.at, topic.size) * 31 + 35


cdef int32_t add_hashes(const Parts *parts, const Facts *facts, uint32_t prefix, Growing *hashes) noexcept nogil:
    """Append the index hashes of a record in Java's order; how many there are, or -1 without memory."""
    cdef size_t before = hashes.size
    cdef const uint8_t *at = facts.keys.at
    cdef const uint8_t *end = at + facts.keys.size
    cdef const uint8_t *key
    if parts.sys_flag & TRANSACTION_MASK == ROLLBACK:
        return 0
    if facts.uniq_key.at != NULL:
        if add_hash(hashes, hash_utf8(prefix, facts.uniq_key.at, facts.uniq_key.size)) == NULL:
            return -1
    while at < end:
        key = at
        while at < end and at[0] != c" ":
            at += 1
        if at > key and add_hash(hashes, hash_utf8(prefix, key, at - key)) == NULL:
            return -1
        at += 1
    if facts.tags.at != NULL:
        # 84 and 35 are `T#`.
        if add_hash(hashes, hash_utf8((prefix * 31 + 84) * 31 + 35, facts.tags.at, facts.tags.size)) == NULL:
            return -1
    return <int32_t>((hashes.size - before) // 4)


cdef int read_levels(delay_levels_ms, Levels *levels) except -1:
    """The delays of the levels; the caller frees them."""
    cdef tuple delays = tuple(delay_levels_ms)
    cdef Py_ssize_t i
    levels.count = 0
    levels.delays_ms = NULL
    if delays:
        levels.delays_ms = <int64_t *>calloc(len(delays), sizeof(int64_t))
        if levels.delays_ms == NULL:
            raise MemoryError
        try:
            for i in range(len(delays)):
                levels.delays_ms[i] = delays[i]
        except BaseException:
            free(levels.delays_ms)
            levels.delays_ms = NULL
            raise
        levels.count = <int32_t>len(delays)
    return 0
