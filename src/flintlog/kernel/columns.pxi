# Records of the log as columns in Arrow's layout, one for each field of a stored message.

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
    bint wants32[INT32_COLUMNS]
    bint wants64[INT64_COLUMNS]
    bint wants_text[TEXT_COLUMNS]  # C_KEY stands for `keys`, C_NAME for `properties`
    bint wants_facts


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


cdef inline bint take32(Columns *columns, int column, int32_t value) noexcept nogil:
    return not columns.wants32[column] or push32(&columns.int32s[column], value)


cdef inline bint take64(Columns *columns, int column, int64_t value) noexcept nogil:
    return not columns.wants64[column] or push64(&columns.int64s[column], value)


cdef bint push_row(Columns *columns, const Parts *parts, const uint8_t *limit, const Levels *levels) noexcept nogil:
    cdef Facts facts
    cdef bint *wants = columns.wants_text
    if wants[C_NAME]:
        if not push_properties(columns, parts, limit, &facts):
            return False
    elif columns.wants_facts:
        facts_of(parts, limit, &facts)
    columns.count += 1
    return (
        take32(columns, C_QUEUE_ID, parts.queue_id)
        and take32(columns, C_SIZE, parts.size)
        and take32(columns, C_BODY_CRC, get32(parts.start + 8))
        and take32(columns, C_FLAG, get32(parts.start + 16))
        and take32(columns, C_SYS_FLAG, parts.sys_flag)
        and take32(columns, C_RECONSUME_TIMES, get32(parts.retries))
        and take32(columns, C_MAGIC, parts.magic)
        and take64(columns, C_QUEUE_OFFSET, parts.queue_offset)
        and take64(columns, C_PHYSICAL_OFFSET, parts.physical_offset)
        and (
            not columns.wants64[C_TAGS_CODE]
            or push64(&columns.int64s[C_TAGS_CODE], tags_code_of(parts, &facts, levels))
        )
        and take64(columns, C_BORN_TIMESTAMP, get64(parts.start + 40))
        and take64(columns, C_STORE_TIMESTAMP, parts.store_timestamp)
        and take64(columns, C_PREPARED_OFFSET, get64(parts.retries + 4))
        and (not wants[C_TOPIC] or push_text(&columns.texts[C_TOPIC], parts.topic))
        and (not wants[C_MESSAGE_ID] or push_message_id(&columns.texts[C_MESSAGE_ID], parts))
        and (not wants[C_TAGS] or push_text(&columns.texts[C_TAGS], facts.tags))
        and (not wants[C_UNIQ_KEY] or push_text(&columns.texts[C_UNIQ_KEY], facts.uniq_key))
        and (not wants[C_BORN_HOST] or push_host(&columns.texts[C_BORN_HOST], &columns.born_host, parts.born_host))
        and (not wants[C_STORE_HOST] or push_host(&columns.texts[C_STORE_HOST], &columns.store_host, parts.store_host))
        and (not wants[C_BODY] or push_raw(&columns.texts[C_BODY], parts.body))
        and (not wants[C_KEY] or push_keys(columns, facts.keys))
    )


cdef int decode_range(
    const uint8_t *data,
    Py_ssize_t *place,
    Py_ssize_t stop,
    int64_t base,
    const Levels *levels,
    const QueueNames *topics,
    int check_crc,
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
            left -= decoded_size(columns, &parts)
            if columns.count > 0 and (left < 0 or columns.count >= max_rows):
                return LIMIT
            if not push_row(columns, &parts, data + stop, levels):
                return -1
        place[0] += parts.head + parts.size


cdef inline int64_t decoded_size(const Columns *columns, const Parts *parts) noexcept nogil:
    return parts.size if columns.wants_text[C_BODY] else parts.size - parts.body.size


cdef int decode_places(
    const uint8_t *data,
    Py_ssize_t size,
    int64_t base,
    const int64_t *places,
    Py_ssize_t count,
    Py_ssize_t *done,
    const Levels *levels,
    int64_t max_rows,
    int64_t left,
    Columns *columns,
) noexcept nogil:
    """The same for the records at given places."""
    cdef Parts parts
    cdef int reason
    while done[0] < count:
        if places[done[0]] < 0 or places[done[0]] > size:
            return NO_RECORD
        reason = record_at(data, places[done[0]], size, base, 0, &parts)
        if reason != WHOLE:
            return reason
        left -= decoded_size(columns, &parts)
        if columns.count > 0 and (left < 0 or columns.count >= max_rows):
            return LIMIT
        if not push_row(columns, &parts, data + size, levels):
            return -1
        done[0] += 1
    return LIMIT


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
    columns=None,
):
    """The records of buffer[start:stop] (of these topics, if given) as columns, or as those that are named.

    Ends early with LIMIT at `max_rows` messages, or before the message that would exceed `max_bytes` (the first
    message is always included); the caller continues at `end`. `check_crc` is a `types.Crc`: decoding also ends
    before a record that does not match its sums.
    """
    cdef Held held = Held(buffer)
    cdef Columns found
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
    memset(&found, 0, sizeof(Columns))
    try:
        if has_topics:
            want_topics(&wanted, kept)
        open_columns(&found, columns, include_body)
        with nogil:
            reason = decode_range(
                held.data,
                &position,
                stop,
                base,
                &levels,
                &wanted if has_topics else NULL,
                check_crc,
                max_rows,
                left,
                &found,
            )
        if reason < 0:
            raise MemoryError
        return Decoded(wrap_columns(&found), found.count, position, SCAN_STOPS[reason])
    finally:
        free_columns(&found)
        free_names(&wanted)
        free(levels.delays_ms)


def decode_at(
    buffer,
    places,
    int64_t base,
    *,
    bint include_body=True,
    int64_t max_rows=65536,
    int64_t max_bytes=64 << 20,
    delay_levels_ms=(),
    columns=None,
):
    """The records at these places of the buffer (an array of int64) as columns.

    `end` is how many of them were decoded. Ends early as `decode` does, or before a place where no record begins.
    """
    cdef Held held = Held(buffer)
    cdef Held wanted = Held(places)
    cdef Columns found
    cdef Levels levels
    cdef Py_ssize_t done = 0
    cdef int64_t left = min(max_bytes, <int64_t>MAX_DECODED_BYTES)
    cdef int reason
    read_levels(delay_levels_ms, &levels)
    memset(&found, 0, sizeof(Columns))
    try:
        open_columns(&found, columns, include_body)
        with nogil:
            reason = decode_places(
                held.data,
                held.size,
                base,
                <const int64_t *>wanted.data,
                wanted.size // 8,
                &done,
                &levels,
                max_rows,
                left,
                &found,
            )
        if reason < 0:
            raise MemoryError
        return Decoded(wrap_columns(&found), found.count, done, SCAN_STOPS[reason])
    finally:
        free_columns(&found)
        free(levels.delays_ms)


cdef int want_topics(QueueNames *wanted, list topics) except -1:
    cdef Span span
    for topic in topics:
        span = span_of(topic)
        if add_queue(wanted, span, 0, queue_hash(span, 0)) < 0:
            raise MemoryError
    return 0


cdef int open_columns(Columns *columns, names, bint include_body) except -1:
    cdef int i
    for i in range(INT32_COLUMNS):
        columns.wants32[i] = names is None or INT32_NAMES[i] in names
    for i in range(INT64_COLUMNS):
        columns.wants64[i] = names is None or INT64_NAMES[i] in names
    for i in range(TEXT_COLUMNS):
        columns.wants_text[i] = names is None or TEXT_NAMES[i].partition(".")[0] in names
    columns.wants_text[C_BODY] = columns.wants_text[C_BODY] and include_body
    columns.wants_facts = (
        columns.wants64[C_TAGS_CODE]
        or columns.wants_text[C_TAGS]
        or columns.wants_text[C_UNIQ_KEY]
        or columns.wants_text[C_KEY]
    )
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


cdef dict wrap_columns(Columns *columns):
    cdef dict wrapped = {}
    cdef int i
    for i in range(INT32_COLUMNS):
        if columns.wants32[i]:
            wrapped[INT32_NAMES[i]] = Column("int32", columns.count, 0, None, None, block_of(&columns.int32s[i]))
    for i in range(INT64_COLUMNS):
        if columns.wants64[i]:
            wrapped[INT64_NAMES[i]] = Column("int64", columns.count, 0, None, None, block_of(&columns.int64s[i]))
    for i in range(TEXT_COLUMNS):
        if columns.wants_text[i]:
            wrapped[TEXT_NAMES[i]] = wrap_texts(&columns.texts[i], "binary" if i == C_BODY else "utf8")
    if columns.wants_text[C_KEY]:
        wrapped["keys"] = Column("list", columns.count, 0, None, block_of(&columns.key_offsets), None)
    if columns.wants_text[C_NAME]:
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
