# A range of the log as columns in Arrow's layout, one for each field of a stored message.

cdef enum:
    # Properties take at most 32767 bytes; a pair takes at least 4 of them, and damaged text may grow threefold.
    MAX_PAIRS = 8192
    MAX_NAMES_SIZE = 3 * 32768
    FEW_PAIRS = 16
    MAX_HOST_TEXT = 56

cdef enum:
    # int32 columns
    C_QUEUE_ID, C_SIZE, C_BODY_CRC, C_FLAG, C_SYS_FLAG, C_RECONSUME_TIMES, C_MAGIC
    INT32_COLUMNS

cdef enum:
    # int64 columns
    C_QUEUE_OFFSET, C_PHYSICAL_OFFSET, C_TAGS_CODE, C_BORN_TIMESTAMP, C_STORE_TIMESTAMP, C_PREPARED_OFFSET
    INT64_COLUMNS

cdef enum:
    # text columns
    C_TOPIC, C_MESSAGE_ID, C_TAGS, C_UNIQ_KEY, C_BORN_HOST, C_STORE_HOST, C_BODY, C_KEY, C_NAME, C_VALUE
    TEXT_COLUMNS

cdef tuple INT32_NAMES = ("queue_id", "size", "body_crc", "flag", "sys_flag", "reconsume_times", "magic")
cdef tuple INT64_NAMES = (
    "queue_offset", "physical_offset", "tags_code", "born_timestamp", "store_timestamp", "prepared_transaction_offset",
)
cdef tuple TEXT_NAMES = (
    "topic", "message_id", "tags", "uniq_key", "born_host", "store_host", "body", "keys.item", "properties.key",
    "properties.value",
)


cdef struct Texts:
    Growing offsets
    Growing data
    Growing present  # a byte a row
    int64_t null_count


cdef struct HostText:
    # The last host: nearly always that of the next record, too.
    uint8_t packed[20]
    int packed_size
    uint8_t text[MAX_HOST_TEXT]
    int text_size


cdef struct Columns:
    Growing int32s[INT32_COLUMNS]
    Growing int64s[INT64_COLUMNS]
    Texts texts[TEXT_COLUMNS]
    Growing key_offsets
    Growing pair_offsets
    HostText born_host
    HostText store_host
    # The properties of the current row: names as good UTF-8, each once.
    Span *names
    Span *values
    uint8_t *name_text
    int64_t key_total
    int64_t pair_total
    int64_t count


cdef inline bint push32(Growing *growing, int32_t value) noexcept nogil:
    cdef int32_t *place = <int32_t *>more(growing, 4)
    if place == NULL:
        return False
    place[0] = value
    growing.size += 4
    return True


cdef inline bint push64(Growing *growing, int64_t value) noexcept nogil:
    cdef int64_t *place = <int64_t *>more(growing, 8)
    if place == NULL:
        return False
    place[0] = value
    growing.size += 8
    return True


cdef inline bint end_text(Texts *texts, bint is_present) noexcept nogil:
    cdef uint8_t *place = more(&texts.present, 1)
    if place == NULL:
        return False
    place[0] = is_present
    texts.present.size += 1
    texts.null_count += not is_present
    return push32(&texts.offsets, <int32_t>texts.data.size)


cdef inline bint push_raw(Texts *texts, Span span) noexcept nogil:
    cdef uint8_t *place = more(&texts.data, span.size)
    if place == NULL:
        return False
    memcpy(place, span.at, span.size)
    texts.data.size += span.size
    return end_text(texts, True)


cdef inline bint push_text(Texts *texts, Span span) noexcept nogil:
    """Text of a record, or null."""
    cdef uint8_t *place
    if span.at == NULL:
        return end_text(texts, False)
    place = more(&texts.data, 3 * <size_t>span.size)
    if place == NULL:
        return False
    texts.data.size += copy_utf8(place, span.at, span.size)
    return end_text(texts, True)


cdef bint push_host(Texts *texts, HostText *last, Span packed) noexcept nogil:
    cdef Span text
    if last.packed_size != packed.size or memcmp(last.packed, packed.at, packed.size) != 0:
        memcpy(last.packed, packed.at, packed.size)
        last.packed_size = packed.size
        last.text_size = put_host(last.text, packed.at, packed.size)
    text.at = last.text
    text.size = last.text_size
    return push_raw(texts, text)


cdef bint push_message_id(Texts *texts, const Parts *parts) noexcept nogil:
    cdef uint8_t *place = more(&texts.data, 56)
    if place == NULL:
        return False
    put_hex(place, parts.store_host.at, parts.store_host.size)
    put_hex(place + 2 * parts.store_host.size, parts.start + 28, 8)
    texts.data.size += 2 * parts.store_host.size + 16
    return end_text(texts, True)


cdef bint push_keys(Columns *columns, Span keys) noexcept nogil:
    cdef const uint8_t *at = keys.at
    cdef const uint8_t *end = at + keys.size
    cdef Span key
    while at < end:
        key.at = at
        while at < end and at[0] != c" ":
            at += 1
        key.size = <int32_t>(at - key.at)
        at += 1
        if key.size > 0:
            columns.key_total += 1
            if not push_text(&columns.texts[C_KEY], key):
                return False
    return push32(&columns.key_offsets, <int32_t>columns.key_total)


cdef bint push_properties(Columns *columns, const Parts *parts, const uint8_t *limit, Facts *facts) noexcept nogil:
    """All pairs, a repeated name once with its last value; also sets the facts."""
    cdef const uint8_t *at = parts.properties.at
    cdef const uint8_t *end = at + parts.properties.size
    cdef uint8_t *text = columns.name_text
    cdef QueueNames many  # the names, once they are too many to compare one by one
    cdef Span name, value
    cdef int32_t count = 0, known, i
    cdef bint is_fine = True
    memset(facts, 0, sizeof(Facts))
    memset(&many, 0, sizeof(QueueNames))
    while is_fine and next_property(&at, end, limit, &name, &value):
        note_property(facts, name.at, name.size, value)
        name.size = <int32_t>copy_utf8(text, name.at, name.size)
        name.at = text
        known = known_pair(columns, count, name, &many, &is_fine)
        if known < 0:
            known = count
            columns.names[count] = name
            text += name.size
            count += 1
        columns.values[known] = value
    free_names(&many)
    for i in range(count):
        if not push_raw(&columns.texts[C_NAME], columns.names[i]):
            return False
        if not push_text(&columns.texts[C_VALUE], columns.values[i]):
            return False
    columns.pair_total += count
    return is_fine and push32(&columns.pair_offsets, <int32_t>columns.pair_total)


cdef int32_t known_pair(
    const Columns *columns, int32_t count, Span name, QueueNames *many, bint *is_fine
) noexcept nogil:
    """Which of the row's pairs has this name; -1 if none has. Names beyond the first few are put into a table."""
    cdef int32_t i
    cdef uint64_t hash
    if count < FEW_PAIRS:
        for i in range(count):
            if columns.names[i].size == name.size and memcmp(columns.names[i].at, name.at, name.size) == 0:
                return i
        return -1
    while many.count < count:
        i = many.count
        if add_queue(many, columns.names[i], 0, queue_hash(columns.names[i], 0)) < 0:
            is_fine[0] = False
            return -1
    hash = queue_hash(name, 0)
    return find_queue(many, name, 0, hash)


cdef bint push_row(
    Columns *columns, const Parts *parts, const uint8_t *limit, const Levels *levels, bint include_body
) noexcept nogil:
    cdef Facts facts
    if not push_properties(columns, parts, limit, &facts):
        return False
    columns.count += 1
    return (
        push32(&columns.int32s[C_QUEUE_ID], parts.queue_id)
        and push32(&columns.int32s[C_SIZE], parts.size)
        and push32(&columns.int32s[C_BODY_CRC], get32(parts.start + 8))
        and push32(&columns.int32s[C_FLAG], get32(parts.start + 16))
        and push32(&columns.int32s[C_SYS_FLAG], parts.sys_flag)
        and push32(&columns.int32s[C_RECONSUME_TIMES], get32(parts.retries))
        and push32(&columns.int32s[C_MAGIC], parts.magic)
        and push64(&columns.int64s[C_QUEUE_OFFSET], parts.queue_offset)
        and push64(&columns.int64s[C_PHYSICAL_OFFSET], parts.physical_offset)
        and push64(&columns.int64s[C_TAGS_CODE], tags_code_of(parts, &facts, levels))
        and push64(&columns.int64s[C_BORN_TIMESTAMP], get64(parts.start + 40))
        and push64(&columns.int64s[C_STORE_TIMESTAMP], parts.store_timestamp)
        and push64(&columns.int64s[C_PREPARED_OFFSET], get64(parts.retries + 4))
        and push_text(&columns.texts[C_TOPIC], parts.topic)
        and push_message_id(&columns.texts[C_MESSAGE_ID], parts)
        and push_text(&columns.texts[C_TAGS], facts.tags)
        and push_text(&columns.texts[C_UNIQ_KEY], facts.uniq_key)
        and push_host(&columns.texts[C_BORN_HOST], &columns.born_host, parts.born_host)
        and push_host(&columns.texts[C_STORE_HOST], &columns.store_host, parts.store_host)
        and (not include_body or push_raw(&columns.texts[C_BODY], parts.body))
        and push_keys(columns, facts.keys)
    )


cdef int decode_range(
    const uint8_t *data,
    Py_ssize_t *place,
    Py_ssize_t stop,
    int64_t base,
    const Levels *levels,
    const QueueNames *topics,
    int check_crc,
    bint include_body,
    int64_t max_rows,
    int64_t left,
    Columns *columns,
) noexcept nogil:
    """Fill the columns; a ScanStop, or -1 without memory."""
    cdef Parts parts
    cdef int reason
    while True:
        reason = record_at(data, place[0], stop, base, check_crc, &parts)
        if reason != WHOLE:
            return reason
        if topics == NULL or find_queue(topics, parts.topic, 0, queue_hash(parts.topic, 0)) >= 0:
            left -= parts.size if include_body else parts.size - parts.body.size
            if columns.count > 0 and (left < 0 or columns.count >= max_rows):
                return LIMIT
            if not push_row(columns, &parts, data + stop, levels, include_body):
                return -1
        place[0] += parts.head + parts.size


def decode(
    buffer,
    Py_ssize_t start,
    Py_ssize_t stop,
    int64_t base,
    *,
    bint include_body=True,
    topics=None,
    int64_t max_rows=65536,
    int64_t max_bytes=64 << 20,
    delay_levels_ms=(),
    int check_crc=0,
):
    """The records of buffer[start:stop] (of these topics, if given) as columns.

    Ends early with LIMIT at `max_rows` messages, or before the message that would exceed `max_bytes` (the first
    message is always included); the caller continues at `end`. `check_crc` is a `types.Crc`: decoding also ends
    before a record that does not match its sums.
    """
    cdef Held held = Held(buffer)
    cdef Columns columns
    cdef QueueNames wanted
    cdef Levels levels
    cdef Py_ssize_t position = start
    cdef int64_t left = min(max_bytes, <int64_t>MAX_DECODED_BYTES)
    cdef list kept = None if topics is None else list(topics)
    cdef bint has_topics = kept is not None
    cdef int reason
    check_range(start, stop, held.size)
    read_levels(delay_levels_ms, &levels)
    memset(&wanted, 0, sizeof(QueueNames))
    memset(&columns, 0, sizeof(Columns))
    try:
        if has_topics:
            want_topics(&wanted, kept)
        open_columns(&columns)
        with nogil:
            reason = decode_range(
                held.data,
                &position,
                stop,
                base,
                &levels,
                &wanted if has_topics else NULL,
                check_crc,
                include_body,
                max_rows,
                left,
                &columns,
            )
        if reason < 0:
            raise MemoryError
        return Decoded(wrap_columns(&columns, include_body), columns.count, position, SCAN_STOPS[reason])
    finally:
        free_columns(&columns)
        free_names(&wanted)
        free(levels.delays_ms)


cdef int want_topics(QueueNames *wanted, list topics) except -1:
    cdef Span span
    for topic in topics:
        span = span_of(topic)
        if add_queue(wanted, span, 0, queue_hash(span, 0)) < 0:
            raise MemoryError
    return 0


cdef int open_columns(Columns *columns) except -1:
    cdef int i
    columns.names = <Span *>malloc(MAX_PAIRS * sizeof(Span))
    columns.values = <Span *>malloc(MAX_PAIRS * sizeof(Span))
    columns.name_text = <uint8_t *>malloc(MAX_NAMES_SIZE)
    if columns.names == NULL or columns.values == NULL or columns.name_text == NULL:
        raise MemoryError
    for i in range(TEXT_COLUMNS):
        if not push32(&columns.texts[i].offsets, 0):
            raise MemoryError
    if not push32(&columns.key_offsets, 0) or not push32(&columns.pair_offsets, 0):
        raise MemoryError
    return 0


cdef void free_columns(Columns *columns) noexcept:
    cdef int i
    for i in range(INT32_COLUMNS):
        free(columns.int32s[i].data)
    for i in range(INT64_COLUMNS):
        free(columns.int64s[i].data)
    for i in range(TEXT_COLUMNS):
        free(columns.texts[i].offsets.data)
        free(columns.texts[i].data.data)
        free(columns.texts[i].present.data)
    free(columns.key_offsets.data)
    free(columns.pair_offsets.data)
    free(columns.names)
    free(columns.values)
    free(columns.name_text)


cdef dict wrap_columns(Columns *columns, bint include_body):
    cdef dict wrapped = {}
    cdef int i
    for i in range(INT32_COLUMNS):
        wrapped[INT32_NAMES[i]] = Column("int32", columns.count, 0, None, None, block_of(&columns.int32s[i]))
    for i in range(INT64_COLUMNS):
        wrapped[INT64_NAMES[i]] = Column("int64", columns.count, 0, None, None, block_of(&columns.int64s[i]))
    for i in range(TEXT_COLUMNS):
        if i != C_BODY or include_body:
            wrapped[TEXT_NAMES[i]] = wrap_texts(&columns.texts[i], "binary" if i == C_BODY else "utf8")
    wrapped["keys"] = Column("list", columns.count, 0, None, block_of(&columns.key_offsets), None)
    wrapped["properties"] = Column("map", columns.count, 0, None, block_of(&columns.pair_offsets), None)
    return wrapped


cdef wrap_texts(Texts *texts, str kind):
    cdef Py_ssize_t count = texts.present.size
    validity = bitmap(texts.present.data, count) if texts.null_count else None
    return Column(kind, count, texts.null_count, validity, block_of(&texts.offsets), block_of(&texts.data))


cdef bytes bitmap(const uint8_t *present, Py_ssize_t count):
    cdef bytes bits = bytes((count + 7) // 8)
    cdef uint8_t *place = <uint8_t *>PyBytes_AS_STRING(bits)
    cdef Py_ssize_t i
    for i in range(count):
        place[i >> 3] |= <uint8_t>(present[i] << (i & 7))
    return bits
