# How a message will be written: its fields, read directly from its memory, checked and measured.
#
# A plan holds borrowed pointers into the message, so no Python code may run between making it and writing it.
# Each function here returns False for everything unusual (other types, wrong values, a host never seen before); the
# plain twin then encodes the message, or raises the error.

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
    PyObject *PyErr_Occurred()
    void PyErr_Clear()
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
    TREEIFY_NODES = 9
    MIN_TREEIFY_CAPACITY = 64

cdef int64_t MAX_BASE = 1 << 62
cdef object ZERO = 0  # most numbers of a message are left at this, and are this object


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
    int special  # 0, or one of the three reserved names


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
    if number == <PyObject *>ZERO:
        value[0] = 0
        return True
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


cdef inline bint find_item(PyObject *table, PyObject *key, PyObject **found) noexcept:
    """Look up a key; `found` is NULL when it is absent. False when a key of a user's type failed to compare.

    The comparison's error is dropped: the long way compares again and raises it. Left set, it would surface in an
    unrelated call.
    """
    found[0] = PyDict_GetItemWithError(table, key)
    return found[0] != NULL or is_absent()


cdef inline bint is_absent() noexcept:
    """After a lookup that found nothing: whether the key is absent. If a comparison failed, its error is dropped."""
    if PyErr_Occurred() == NULL:
        return True
    PyErr_Clear()
    return False


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
        if memchr(text.at, c" ", text.size) != NULL:  # the reference kernel refuses it, and says why
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
