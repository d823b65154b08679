# Which records of a range of the log are named by queue entries and index entries.

cdef enum:
    PREFILL_SIZE = 0x7FFFFFFF
    OFFSET_AT = 4  # in an index entry
    INDEX_STRIDE = 20


cdef int64_t MAX_PLACE = 0x3FFFFFFFFFFFFFFF


cdef inline bint names_record(const uint8_t *entry, int64_t *begin, int64_t *size) noexcept nogil:
    begin[0] = get64(entry)
    size[0] = get32(entry + 8)
    return 0 <= begin[0] <= MAX_PLACE and 0 < size[0] < PREFILL_SIZE


cdef int check_marks(Held held, int64_t start, int64_t stop) except -1:
    if not 0 <= start <= stop or held.size < (stop - start + 7) // 8:
        raise ValueError("marks need a bit for each byte")
    return 0


cdef int check_stride(Py_ssize_t stride) except -1:
    if stride < 12:
        raise ValueError("an entry has an offset and a size")
    return 0


def claim(marks, int64_t start, int64_t stop, entries, Py_ssize_t stride):
    """Flip a bit of the marks (a bit for each byte of [start, stop)) where each record that queue entries name begins,
    and where it ends. The sum of the bytes of [start, stop) that each of them covers."""
    cdef Held held = Held(marks, True)
    cdef Held given = Held(entries)
    cdef const uint8_t *at = given.data
    cdef const uint8_t *end
    cdef int64_t begin, size, place, after, total = 0
    check_marks(held, start, stop)
    check_stride(stride)
    end = at + given.size // stride * stride
    with nogil:
        while at < end:
            if names_record(at, &begin, &size) and begin < stop and begin + size > start:
                place = begin - start if begin > start else 0
                held.data[place >> 3] ^= <uint8_t>(1 << (place & 7))
                after = begin + size - start
                if after < stop - start:
                    held.data[after >> 3] ^= <uint8_t>(1 << (after & 7))
                else:
                    after = stop - start
                total += after - place
            at += stride
    return total


def unclaimed(marks, int64_t start, int64_t stop):
    """The stretches of [start, stop) that an even number of the claimed records cover: none, or several."""
    cdef Held held = Held(marks)
    cdef Py_ssize_t byte = 0, size
    cdef int64_t since = start, place
    cdef bint is_claimed = False
    cdef uint8_t bits
    cdef int bit
    cdef list found = []
    check_marks(held, start, stop)
    size = (stop - start + 7) // 8
    while byte < size:
        if byte + 8 <= size and (<uint64_t *>(held.data + byte))[0] == 0:
            byte += 8
            continue
        bits = held.data[byte]
        for bit in range(8 if bits else 0):
            if not bits >> bit & 1:
                continue
            place = start + 8 * byte + bit
            if not is_claimed and place > since:
                found.append((since, min(place, stop)))
            is_claimed = not is_claimed
            since = place
        byte += 1
    if not is_claimed and since < stop:
        found.append((since, stop))
    return found


cdef inline bint is_marked(const uint8_t *marks, int64_t place) noexcept nogil:
    return marks[place >> 3] >> (place & 7) & 1


def named_records(entries, Py_ssize_t stride, int64_t start, int64_t stop, *, beside=None, without=None):
    """Of the entries whose record begins in [start, stop): physical offset, size and number of each, in an array.

    With `beside` (marks) only those whose begin or end is marked; with `without` those whose begin is not marked.
    """
    cdef Held given = Held(entries)
    cdef Held edges = None if beside is None else Held(beside)
    cdef Held known = None if without is None else Held(without)
    cdef Growing found
    cdef const uint8_t *at
    cdef int64_t begin, size, place, number
    check_stride(stride)
    if edges is not None:
        check_marks(edges, start, stop)
    if known is not None:
        check_marks(known, start, stop)
    memset(&found, 0, sizeof(Growing))
    try:
        for number in range(given.size // stride):
            at = given.data + number * stride
            if not names_record(at, &begin, &size) or not start <= begin < stop:
                continue
            place = begin - start
            if known is not None and is_marked(known.data, place):
                continue
            if edges is not None and not is_marked(edges.data, place):
                if begin + size >= stop or not is_marked(edges.data, place + size):
                    continue
            if not (push64(&found, begin) and push64(&found, size) and push64(&found, number)):
                raise MemoryError
        return numbers_of(&found)
    finally:
        free(found.data)


def find_keys(entries, int64_t start, int64_t stop, hashes, marks):
    """The physical offsets in [start, stop) of index entries with one of these hashes, in an array.

    The marks get a bit where a record begins that any entry names.
    """
    cdef Held given = Held(entries)
    cdef Held held = Held(marks, True)
    cdef Growing found
    cdef uint8_t few[8192]
    cdef const uint8_t *at
    cdef int64_t begin, place, number
    cdef int32_t hash
    check_marks(held, start, stop)
    memset(few, 0, sizeof(few))
    memset(&found, 0, sizeof(Growing))
    for wanted in hashes:
        hash = wanted
        few[(hash & 0xFFFF) >> 3] |= <uint8_t>(1 << (hash & 7))
    try:
        for number in range(given.size // INDEX_STRIDE):
            at = given.data + number * INDEX_STRIDE
            begin = get64(at + OFFSET_AT)
            if not start <= begin < stop:
                continue
            place = begin - start
            held.data[place >> 3] |= <uint8_t>(1 << (place & 7))
            hash = get32(at)
            if few[(hash & 0xFFFF) >> 3] >> (hash & 7) & 1 and hash in hashes:
                if not push64(&found, begin):
                    raise MemoryError
        return numbers_of(&found)
    finally:
        free(found.data)


cdef numbers_of(Growing *found):
    made = array.array("q")
    if found.size:
        made.frombytes(PyBytes_FromStringAndSize(<char *>found.data, found.size))
    return made
