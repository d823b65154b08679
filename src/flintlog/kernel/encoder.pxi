# From a message to its record at the tail of the log.
#
# The fields of a message are read where they lie in its memory. A plan holds borrowed pointers into the
# message: no Python code runs between making it and writing it. What the plan cannot hold (other types, wrong
# values, a host never seen before) the plain twin encodes, or refuses.

cdef extern from *:
    """
    #include <structmember.h>

    /* Where instances of `type` keep the member that `descriptor` stands for; -1 if it is no plain member. */
    static Py_ssize_t slot_offset(PyObject *type, PyObject *descriptor) {
        PyMemberDef *member;
        if (Py_TYPE(descriptor) != &PyMemberDescr_Type) return -1;
        if (!PyType_IsSubtype((PyTypeObject *)type, PyDescr_TYPE(descriptor))) return -1;
        member = ((PyMemberDescrObject *)descriptor)->d_member;
        return member->type == T_OBJECT_EX || member->type == T_OBJECT ? member->offset : -1;
    }
    """
    Py_ssize_t slot_offset(PyObject *type, PyObject *descriptor)

cdef extern from "Python.h":
    PyObject *Py_None
    void *Py_TYPE(PyObject *value)
    void Py_INCREF "Py_INCREF"(PyObject *value)
    void Py_XDECREF "Py_XDECREF"(PyObject *value)
    bint PyBytes_CheckExact(PyObject *value)
    bint PyLong_CheckExact(PyObject *value)
    long long PyLong_AsLongLongAndOverflow(PyObject *value, int *overflow)
    bint PyTuple_CheckExact(PyObject *value)
    bint PyList_CheckExact(PyObject *value)
    Py_ssize_t PySequence_Fast_GET_SIZE(PyObject *value)
    PyObject **PySequence_Fast_ITEMS(PyObject *value)
    bint PyDict_CheckExact(PyObject *value)
    int PyDict_Next(PyObject *value, Py_ssize_t *place, PyObject **key, PyObject **item)
    PyObject *PyDict_GetItemWithError(PyObject *value, PyObject *key)
    char *BYTES_DATA "PyBytes_AS_STRING"(PyObject *value)
    Py_ssize_t BYTES_SIZE "PyBytes_GET_SIZE"(PyObject *value)

cdef enum:
    TOPIC, BODY, TAGS, KEYS, QUEUE_ID, PROPERTIES, FLAG, SYS_FLAG, BORN_TIMESTAMP, BORN_HOST, STORE_HOST
    RECONSUME_TIMES, PREPARED_OFFSET
    FIELD_COUNT

cdef tuple FIELD_NAMES = (
    "topic", "body", "tags", "keys", "queue_id", "properties", "flag", "sys_flag", "born_timestamp", "born_host",
    "store_host", "reconsume_times", "prepared_transaction_offset",
)

cdef enum:
    MAX_PLANNED = 64
    NAME_CACHE = 64
    MAX_TOPIC_SIZE = 255
    MAX_V1_TOPIC_SIZE = 127
    MAX_PROPERTIES_SIZE = 32767
    CRC_PROPERTY_SIZE = 20
    TREEIFY_NODES = 9
    MIN_TREEIFY_CAPACITY = 64

cdef int64_t MAX_BASE = 1 << 62


cdef enum:
    TAGS_NAME = 1
    KEYS_NAME = 2
    CRC_NAME = 3

cdef uint32_t tags_spread = spread_of_literal(b"TAGS")
cdef uint32_t keys_spread = spread_of_literal(b"KEYS")
cdef array.array INT64_ARRAY = array.array("q")


cdef struct KnownName:
    # A property's name that was checked and hashed before.
    PyObject *name
    Span text
    uint32_t spread
    int special  # 0, or one of the three names that are not always free to use


cdef struct Pair:
    Span name
    Span value
    uint32_t spread
    bint is_keys


cdef struct Plan:
    Span topic
    Span body
    Span born_host
    Span store_host
    int32_t queue_id
    int32_t flag
    int32_t sys_flag
    int32_t reconsume_times
    int64_t prepared_offset
    int64_t born_timestamp
    PyObject **keys
    Py_ssize_t key_count
    Span raw_properties
    int32_t properties_size  # with the CRC property
    int32_t size
    bint has_tags
    bint has_keys
    int pair_count
    Pair pairs[MAX_PLANNED]


cdef inline bint text_of(PyObject *text, Span *span) noexcept:
    """The UTF-8 bytes of an exact str, valid as long as it lives; False for anything else."""
    cdef Py_ssize_t size
    if not PyUnicode_CheckExact(text):
        return False
    if PyUnicode_IS_COMPACT_ASCII(text):
        size = PyUnicode_GET_LENGTH(text)
        span.at = <const uint8_t *>PyUnicode_DATA(text)
    else:
        span.at = <const uint8_t *>_utf8_of(text, &size)
        if span.at == NULL:
            return False
    if size > MAX_PROPERTIES_SIZE:
        return False
    span.size = <int32_t>size
    return True


cdef const char *_utf8_of(PyObject *text, Py_ssize_t *size) noexcept:
    try:
        return PyUnicode_AsUTF8AndSize(text, size)
    except BaseException:  # a lone surrogate: the plain twin says so
        return NULL


cdef inline bint int64_of(PyObject *number, int64_t *value) noexcept:
    cdef int overflow = 0
    if not PyLong_CheckExact(number):
        return False
    value[0] = PyLong_AsLongLongAndOverflow(number, &overflow)
    return overflow == 0


cdef inline bint int32_of(PyObject *number, int32_t *value) noexcept:
    cdef int64_t wide
    if not int64_of(number, &wide) or wide < INT32_MIN or wide > INT32_MAX:
        return False
    value[0] = <int32_t>wide
    return True


cdef class Encoder:
    """Writes messages of one type as records of one store. One thread at a time uses a tail."""

    cdef readonly object message_type
    cdef readonly object store_host
    cdef readonly bint append_crc
    cdef readonly bint auto_version
    cdef object plain
    cdef dict hosts
    cdef bint has_slots
    cdef Py_ssize_t slots[FIELD_COUNT]
    cdef Py_ssize_t max_body_size
    cdef bytes default_host
    cdef PyObject *last_topic
    cdef Span last_topic_text
    cdef KnownName names[NAME_CACHE]

    def __cinit__(self):
        memset(self.names, 0, sizeof(self.names))

    def __init__(
        self,
        message_type,
        *,
        store_host,
        Py_ssize_t max_message_size,
        bint append_crc=False,
        bint auto_version=True,
    ):
        cdef int i
        self.plain = PlainEncoder(
            message_type,
            store_host=store_host,
            max_message_size=max_message_size,
            append_crc=append_crc,
            auto_version=auto_version,
        )
        self.message_type = message_type
        self.store_host = store_host
        self.max_body_size = max_message_size
        self.append_crc = append_crc
        self.auto_version = auto_version
        self.hosts = self.plain._hosts
        self.default_host = self.hosts[store_host]
        self.has_slots = True
        for i in range(FIELD_COUNT):
            descriptor = getattr(message_type, FIELD_NAMES[i], None)
            self.slots[i] = slot_offset(<PyObject *>message_type, <PyObject *>descriptor)
            if self.slots[i] < 0:
                self.has_slots = False

    def __dealloc__(self):
        Py_XDECREF(self.last_topic)
        for i in range(NAME_CACHE):
            Py_XDECREF(self.names[i].name)

    @property
    def max_message_size(self):
        return self.max_body_size

    @max_message_size.setter
    def max_message_size(self, Py_ssize_t size):
        self.plain.max_message_size = size
        self.max_body_size = size

    def append(self, Tail tail not None, message, queue_offset, store_timestamp, properties=None):
        """Write one record and return its size; 0 (END_OF_FILE) when the file has no room for it."""
        cdef Plan plan
        cdef int64_t offset_in_queue, stored_at
        cdef uint8_t *at
        cdef uint8_t start[8]
        tail.check_writable()
        if (
            not int64_of(<PyObject *>queue_offset, &offset_in_queue)
            or not int64_of(<PyObject *>store_timestamp, &stored_at)
            or not self.make_plan(<PyObject *>message, <PyObject *>properties, stored_at, &plan)
        ):
            return self.append_plainly(tail, message, queue_offset, store_timestamp, properties)
        if <Py_ssize_t>plan.size + END_RESERVE > tail.size - tail.at:
            return 0
        at = tail.data + tail.at
        write_head(at, &plan, offset_in_queue, tail.base + tail.at, stored_at)
        memcpy(at + plan.size - tail_size(&plan) - plan.body.size, plan.body.at, plan.body.size)
        put32(at + 8, <int32_t>crc_of(plan.body.at, plan.body.size))
        write_tail(at + plan.size - tail_size(&plan), &plan)
        write_start(start, &plan)
        if self.append_crc:
            seal(at, start, plan.size)
        write_barrier()
        memcpy(at, start, 8)
        tail.at += plan.size
        return plan.size

    cdef append_plainly(self, Tail tail, message, queue_offset, store_timestamp, properties):
        cdef bytes record = self.plain.encode(message, queue_offset, tail.end, store_timestamp, properties)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(record)
        tail.check_writable()  # other code ran
        if size + END_RESERVE > tail.size - tail.at:
            return 0
        publish(tail.data + tail.at, <const uint8_t *>PyBytes_AS_STRING(record), size)
        tail.at += size
        return size

    def append_batch(self, Tail tail not None, messages, queue_offset, store_timestamp):
        """Write the messages of one queue one behind the other, all or none.

        Returns where each record starts, and the end; None when the file has no room for all of them.
        """
        cdef list items = list(messages)
        cdef list bodies = []  # keeps alive what is written in the end
        cdef array.array offsets
        cdef Growing frames
        cdef Py_ssize_t total
        tail.check_writable()
        if not items:
            raise InvalidMessage("a batch has at least one message")
        offsets = array.clone(INT64_ARRAY, len(items) + 1, False)
        memset(&frames, 0, sizeof(Growing))
        try:
            total = self.plan_batch(
                items, tail.base + tail.at, queue_offset, store_timestamp, offsets.data.as_longlongs, bodies, &frames
            )
            tail.check_writable()  # other code may have run
            if total + END_RESERVE > tail.size - tail.at:
                return None
            write_batch(
                tail.data + tail.at, bodies, frames.data, <int64_t *>offsets.data.as_longlongs, self.append_crc
            )
            tail.at += total
        finally:
            free(frames.data)
        return offsets

    cdef Py_ssize_t plan_batch(
        self,
        list items,
        int64_t physical_offset,
        queue_offset,
        store_timestamp,
        long long *starts,
        list bodies,
        Growing *frames,
    ) except -1:
        """Check all messages; put each record without its body into `frames`, and its body into `bodies`."""
        cdef Plan plan
        cdef Py_ssize_t i
        cdef int64_t offset_in_queue = 0, stored_at = 0
        cdef Py_ssize_t total = 0
        cdef int32_t frame_size, behind
        cdef uint8_t *frame
        cdef bytes topic = None
        cdef int32_t queue_id = -1
        cdef bint has_numbers = int64_of(<PyObject *>queue_offset, &offset_in_queue)
        has_numbers = has_numbers and int64_of(<PyObject *>store_timestamp, &stored_at) and offset_in_queue < MAX_BASE
        for i in range(len(items)):
            message = items[i]
            starts[i] = physical_offset + total
            if topic is None and i > 0:
                check_in_batch(message, items[0])
            if not has_numbers or not self.make_plan(<PyObject *>message, Py_None, stored_at, &plan):
                check_in_batch(message, items[0])
                record = self.plain.encode(message, queue_offset + i, starts[i], store_timestamp, None, True)
                bodies.append((record,))
                total += len(record)
                continue
            # From here on no other code may run: the plan borrows from the message.
            if topic is None:
                topic = PyBytes_FromStringAndSize(<const char *>plan.topic.at, plan.topic.size)
                queue_id = plan.queue_id
            if not may_follow(&plan, topic, queue_id):
                check_in_batch(message, items[0])
                raise InvalidMessage("the message cannot be in this batch")
            behind = tail_size(&plan)
            frame_size = plan.size - plan.body.size
            frame = more(frames, sizeof(int32_t) + frame_size)
            if frame == NULL:
                raise MemoryError
            frames.size += sizeof(int32_t) + frame_size
            memcpy(frame, &behind, sizeof(int32_t))
            frame += sizeof(int32_t)
            write_start(frame, &plan)
            write_head(frame, &plan, offset_in_queue + i, starts[i], stored_at)
            write_tail(frame + frame_size - behind, &plan)
            bodies.append(<object>field(<PyObject *>message, self.slots[BODY]))
            total += plan.size
        starts[len(items)] = physical_offset + total
        return total

    cdef bint make_plan(self, PyObject *message, PyObject *properties, int64_t stored_at, Plan *plan) noexcept:
        """Whether the message is of the usual kind; then the plan says how to write it."""
        cdef PyObject *value
        cdef int i
        if not self.has_slots or Py_TYPE(message) != <void *>self.message_type:
            return False
        for i in range(FIELD_COUNT):
            if field(message, self.slots[i]) == NULL:
                return False
        if not self.plan_topic(field(message, self.slots[TOPIC]), plan):
            return False
        value = field(message, self.slots[BODY])
        if not PyBytes_CheckExact(value) or BYTES_SIZE(value) > self.max_body_size or BYTES_SIZE(value) > 0x3FFFFFFF:
            return False
        plan.body.at = <const uint8_t *>BYTES_DATA(value)
        plan.body.size = <int32_t>BYTES_SIZE(value)
        if (
            not int32_of(field(message, self.slots[QUEUE_ID]), &plan.queue_id)
            or plan.queue_id < 0
            or not int32_of(field(message, self.slots[FLAG]), &plan.flag)
            or not int32_of(field(message, self.slots[SYS_FLAG]), &plan.sys_flag)
            or not int32_of(field(message, self.slots[RECONSUME_TIMES]), &plan.reconsume_times)
            or not int64_of(field(message, self.slots[PREPARED_OFFSET]), &plan.prepared_offset)
        ):
            return False
        value = field(message, self.slots[BORN_TIMESTAMP])
        if value == Py_None:
            plan.born_timestamp = stored_at
        elif not int64_of(value, &plan.born_timestamp):
            return False
        if not self.plan_host(field(message, self.slots[BORN_HOST]), &plan.born_host):
            return False
        if not self.plan_host(field(message, self.slots[STORE_HOST]), &plan.store_host):
            return False
        plan.sys_flag &= ~(BORN_HOST_V6 | STORE_HOST_V6)
        if plan.born_host.size > 8:
            plan.sys_flag |= BORN_HOST_V6
        if plan.store_host.size > 8:
            plan.sys_flag |= STORE_HOST_V6
        if not self.plan_properties(message, properties, plan):
            return False
        plan.size = (
            MIN_RECORD_SIZE - 16
            + plan.born_host.size + plan.store_host.size
            + plan.body.size + plan.topic.size + plan.properties_size
            + (plan.topic.size > MAX_V1_TOPIC_SIZE)
        )
        return True

    cdef bint plan_topic(self, PyObject *topic, Plan *plan) noexcept:
        cdef Span text
        if topic == self.last_topic:
            plan.topic = self.last_topic_text
            return True
        if not text_of(topic, &text) or not (1 <= text.size <= MAX_TOPIC_SIZE):
            return False
        if has_control(text.at, text.size) or (text.size > MAX_V1_TOPIC_SIZE and not self.auto_version):
            return False
        if text.at[0] == c"." and (text.size == 1 or (text.size == 2 and text.at[1] == c".")):
            return False
        Py_INCREF(topic)
        Py_XDECREF(self.last_topic)
        self.last_topic = topic
        self.last_topic_text = plan.topic = text
        return True

    cdef bint plan_host(self, PyObject *host, Span *span) noexcept:
        cdef PyObject *packed = <PyObject *>self.default_host
        if host != Py_None:
            if not PyUnicode_CheckExact(host):
                return False
            packed = PyDict_GetItemWithError(<PyObject *>self.hosts, host)
            if packed == NULL:
                return False
        span.at = <const uint8_t *>BYTES_DATA(packed)
        span.size = <int32_t>BYTES_SIZE(packed)
        return True

    cdef bint plan_properties(self, PyObject *message, PyObject *given, Plan *plan) noexcept:
        cdef int64_t size = 0
        cdef int i
        plan.raw_properties.at = NULL
        plan.has_tags = plan.has_keys = False
        plan.pair_count = 0
        if given != Py_None:
            if not PyBytes_CheckExact(given) or self.append_crc or BYTES_SIZE(given) > MAX_PROPERTIES_SIZE:
                return False
            plan.raw_properties.at = <const uint8_t *>BYTES_DATA(given)
            plan.raw_properties.size = plan.properties_size = <int32_t>BYTES_SIZE(given)
            return True
        if (
            not plan_tags(field(message, self.slots[TAGS]), plan)
            or not plan_keys(field(message, self.slots[KEYS]), plan)
            or not self.plan_pairs(field(message, self.slots[PROPERTIES]), plan)
        ):
            return False
        for i in range(plan.pair_count):
            size += plan.pairs[i].name.size + plan.pairs[i].value.size + 2
        if self.append_crc:
            size += CRC_PROPERTY_SIZE
        if size > MAX_PROPERTIES_SIZE:
            return False
        plan.properties_size = <int32_t>size
        if plan.pair_count > 1:
            sort_pairs(plan)
        return True

    cdef bint plan_pairs(self, PyObject *properties, Plan *plan) noexcept:
        cdef Py_ssize_t place = 0
        cdef PyObject *name
        cdef PyObject *value
        cdef KnownName *known
        cdef Pair *pair
        if properties == Py_None:
            return True
        if not PyDict_CheckExact(properties):
            return False
        while PyDict_Next(properties, &place, &name, &value):
            if plan.pair_count == MAX_PLANNED:
                return False
            known = &self.names[(<size_t>name >> 4) & (NAME_CACHE - 1)]
            if known.name != name and not learn_name(known, name):
                return False
            if known.special and self.is_taken(known.special, plan):
                return False
            pair = &plan.pairs[plan.pair_count]
            if not text_of(value, &pair.value) or has_separator(pair.value.at, pair.value.size):
                return False
            pair.name = known.text
            pair.spread = known.spread
            pair.is_keys = False
            plan.pair_count += 1
        return True


    cdef bint is_taken(self, int special, const Plan *plan) noexcept:
        """Whether an argument, or the encoder itself, has this name already."""
        if special == TAGS_NAME:
            return plan.has_tags
        if special == KEYS_NAME:
            return plan.has_keys
        return self.append_crc


cdef inline PyObject *field(PyObject *message, Py_ssize_t offset) noexcept:
    return (<PyObject **>(<char *>message + offset))[0]


cdef inline uint32_t spread_of(Span text) noexcept:
    """The hash by which a HashMap chooses a bucket."""
    cdef uint32_t h = hash_utf8(0, text.at, text.size)
    return h ^ (h >> 16)


cdef uint32_t spread_of_literal(bytes name) noexcept:
    cdef Span text
    text.at = <const uint8_t *>PyBytes_AS_STRING(name)
    text.size = <int32_t>PyBytes_GET_SIZE(name)
    return spread_of(text)


cdef bint learn_name(KnownName *known, PyObject *name) noexcept:
    """Check and hash a property's name, and remember it in place of another."""
    cdef Span text
    if not text_of(name, &text) or text.size == 0 or has_separator(text.at, text.size):
        return False
    Py_INCREF(name)
    Py_XDECREF(known.name)
    known.name = name
    known.text = text
    known.spread = spread_of(text)
    known.special = 0
    if text.size == 4 and memcmp(text.at, b"TAGS", 4) == 0:
        known.special = TAGS_NAME
    elif text.size == 4 and memcmp(text.at, b"KEYS", 4) == 0:
        known.special = KEYS_NAME
    elif text.size == 8 and memcmp(text.at, b"__CRC32#", 8) == 0:
        known.special = CRC_NAME
    return True


cdef inline bint plan_tags(PyObject *tags, Plan *plan) noexcept:
    cdef Pair *pair = &plan.pairs[plan.pair_count]
    if tags == Py_None:
        return True
    if not text_of(tags, &pair.value) or has_separator(pair.value.at, pair.value.size):
        return False
    pair.name.at = <const uint8_t *>b"TAGS"
    pair.name.size = 4
    pair.spread = tags_spread
    plan.has_tags = True
    pair.is_keys = False
    plan.pair_count += 1
    return True


cdef inline bint plan_keys(PyObject *keys, Plan *plan) noexcept:
    cdef Pair *pair = &plan.pairs[plan.pair_count]
    cdef Py_ssize_t i
    cdef int64_t size
    cdef Span text
    if not PyTuple_CheckExact(keys) and not PyList_CheckExact(keys):
        return keys == Py_None
    plan.keys = PySequence_Fast_ITEMS(keys)
    plan.key_count = PySequence_Fast_GET_SIZE(keys)
    if plan.key_count == 0:
        return True
    size = plan.key_count - 1
    for i in range(plan.key_count):
        if not text_of(plan.keys[i], &text) or has_separator(text.at, text.size):
            return False
        size += text.size
    if size > MAX_PROPERTIES_SIZE:
        return False
    pair.name.at = <const uint8_t *>b"KEYS"
    pair.name.size = 4
    pair.value.at = NULL
    pair.value.size = <int32_t>size
    pair.spread = keys_spread
    plan.has_keys = True
    pair.is_keys = True
    plan.pair_count += 1
    return True


cdef void sort_pairs(Plan *plan) noexcept:
    """Into the order of a Java HashMap that had the capacity 16 and took the pairs one by one."""
    cdef uint32_t capacity = 16
    cdef Pair pair
    cdef int i, j, same
    if plan.pair_count >= TREEIFY_NODES:
        for i in range(plan.pair_count):
            same = 1
            for j in range(i):
                if (plan.pairs[j].spread ^ plan.pairs[i].spread) & (capacity - 1) == 0:
                    same += 1
            # A crowded bucket grows a small table on its own, beside the growth by count.
            if same >= TREEIFY_NODES and capacity < MIN_TREEIFY_CAPACITY:
                capacity *= 2
            if <uint32_t>(i + 1) > capacity * 3 // 4:
                capacity *= 2
    for i in range(1, plan.pair_count):
        pair = plan.pairs[i]
        j = i
        while j > 0 and (plan.pairs[j - 1].spread & (capacity - 1)) > (pair.spread & (capacity - 1)):
            plan.pairs[j] = plan.pairs[j - 1]
            j -= 1
        if j != i:
            plan.pairs[j] = pair


cdef bint may_follow(const Plan *plan, bytes topic, int32_t queue_id) noexcept:
    """Whether a message may be in a batch of this queue."""
    if plan.queue_id != queue_id or plan.sys_flag & TRANSACTION_MASK or plan.prepared_offset != 0:
        return False
    if plan.topic.size != PyBytes_GET_SIZE(topic):
        return False
    return memcmp(plan.topic.at, PyBytes_AS_STRING(topic), plan.topic.size) == 0


cdef inline int32_t tail_size(const Plan *plan) noexcept:
    """Everything behind the body."""
    return 3 + (plan.topic.size > MAX_V1_TOPIC_SIZE) + plan.topic.size + plan.properties_size


cdef inline void write_start(uint8_t *at, const Plan *plan) noexcept:
    put32(at, plan.size)
    put32(at + 4, MAGIC_V2 if plan.topic.size > MAX_V1_TOPIC_SIZE else MAGIC_V1)


cdef inline void write_head(
    uint8_t *at, const Plan *plan, int64_t queue_offset, int64_t physical_offset, int64_t stored_at
) noexcept:
    """Everything before the body but the first 8 bytes and the CRC."""
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


cdef inline void write_tail(uint8_t *at, const Plan *plan) noexcept:
    cdef int i
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
    """Close a record with the sum of all before it; its first 8 bytes are still in `start` only."""
    cdef uint8_t *at = record + size - CRC_PROPERTY_SIZE
    cdef uint32_t crc = crc_more(crc_more(0xFFFFFFFF, start, 8), record + 8, size - 8 - CRC_PROPERTY_SIZE)
    cdef int i
    crc = ~crc & <uint32_t>0x7FFFFFFF
    memcpy(at, b"__CRC32#\x01", 9)
    for i in range(10):
        at[9 + i] = <uint8_t>(c"0" + crc % 10)
        crc //= 10
    at[19] = 2


cdef inline void publish(uint8_t *at, const uint8_t *records, Py_ssize_t size) noexcept:
    """Copy records to their place, the first 8 bytes last."""
    memcpy(at + 8, records + 8, size - 8)
    write_barrier()
    memcpy(at, records, 8)


cdef int write_batch(uint8_t *at, list bodies, const uint8_t *frame, const int64_t *starts, bint with_crc) except -1:
    """Put planned records together where they belong, the first 8 bytes of the first one last."""
    cdef const uint8_t *first = NULL
    cdef const uint8_t *start
    cdef const uint8_t *content
    cdef uint8_t *record
    cdef Py_ssize_t i
    cdef int32_t size, body_size, behind, before
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
            memcpy(&behind, frame, sizeof(int32_t))
            start = frame + sizeof(int32_t)
            before = size - behind - body_size
            memcpy(record + 8, start + 8, before - 8)
            memcpy(record + before, content, body_size)
            memcpy(record + before + body_size, start + before, behind)
            put32(record + 8, <int32_t>crc_of(content, body_size))
            if with_crc:
                seal(record, start, size)
            frame = start + before + behind
        if i == 0:
            first = start
        else:
            memcpy(record, start, 8)
    write_barrier()
    memcpy(at, first, 8)
    return 0
