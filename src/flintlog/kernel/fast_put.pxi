# The fast path of a put: from a message to a visible record.

cdef extern from "time.h" nogil:
    ctypedef long time_t
    struct timespec:
        time_t tv_sec
        long tv_nsec
    int clock_gettime(int clock, timespec *now)
    int CLOCK_REALTIME

cdef extern from *:
    """
    /* Look up a table by a known hash: Python computes a tuple's hash anew each time. */
    #if PY_VERSION_HEX < 0x030D0000
    #define get_known(table, key, hash) _PyDict_GetItem_KnownHash(table, key, hash)
    #define set_known(table, key, value, hash) _PyDict_SetItem_KnownHash(table, key, value, hash)
    #else
    #define get_known(table, key, hash) PyDict_GetItemWithError(table, key)
    #define set_known(table, key, value, hash) PyDict_SetItem(table, key, value)
    #endif

    /* Call a built-in method without arguments directly, without the cost of a general call. */
    #define ask_built_in(method) PyCFunction_GET_FUNCTION(method)(PyCFunction_GET_SELF(method), NULL)
    #define takes_nothing(method) (PyCFunction_GET_FLAGS(method) == METH_NOARGS)
    """
    PyObject *get_known(PyObject *table, PyObject *key, Py_hash_t hash)
    int set_known(PyObject *table, PyObject *key, PyObject *value, Py_hash_t hash) except -1
    object ask_built_in(PyObject *method)
    bint takes_nothing(PyObject *method)

cdef enum:
    SPECIAL_FLAGS = 0xC | 0x80
    QUEUE_CACHE = 32  # a power of two
    PUT_REASONS = 0xFFFF  # see ClosedFor in types.py
    DISPATCH_REASONS = 0x7FFF0000

cdef str INNER_NUM = "INNER_NUM"


cdef struct KnownQueue:
    # A queue of an earlier put: its key in the table of next offsets, made once, and its ordinal in fast dispatch.
    PyObject *topic
    int64_t queue_id
    PyObject *name
    Py_hash_t hash
    int32_t ordinal


@cython.final
cdef class FastPut:
    """The fast path of a plain message. A put that returns None has done nothing. See the plain twin.

    A single put does not acquire the put lock: it holds the GIL from its check that the lock is free until its record
    is in the log and its queue's next offset in the table, so no other thread can acquire the lock in between. All that
    may run other code (a given clock, garbage collection) is done before that check.
    """

    cdef readonly Encoder encoder
    cdef readonly FastDispatch fast_dispatch
    cdef public Tail tail
    cdef public dict next_offsets
    cdef readonly uint32_t closed_for
    cdef public int64_t ready_until
    cdef public object when_behind
    cdef object acquire
    cdef object release
    cdef object locked
    cdef object now_ms
    cdef object receipt_type
    cdef object batch_type
    cdef object ok
    cdef Py_ssize_t delay_level_at
    cdef Py_ssize_t deliver_at_at
    cdef Py_ssize_t compress_at
    cdef KnownQueue queues[QUEUE_CACHE]
    cdef int64_t last_stored_at
    cdef object last_time  # the same as a Python int: many puts share a millisecond
    cdef Py_ssize_t last_record_size
    cdef object last_size

    def __cinit__(self):
        memset(self.queues, 0, sizeof(self.queues))
        self.last_time = self.last_size = 0

    def __init__(self, Encoder encoder not None, FastDispatch fast_dispatch not None, *, lock, receipt_type, batch_type, ok, now_ms=None):
        self.encoder = encoder
        self.fast_dispatch = fast_dispatch
        self.acquire = lock.acquire
        self.release = lock.release
        self.locked = lock.locked
        # A method in Python could lose the GIL before it returns.
        if type(self.locked) is not BuiltinMethodType or not takes_nothing(<PyObject *>self.locked):
            raise TypeError("the method `locked` of a put lock must be a built-in one")
        self.now_ms = now_ms
        self.receipt_type = receipt_type
        self.batch_type = batch_type
        self.ok = ok
        self.next_offsets = {}
        self.delay_level_at = self.slot("delay_level")
        self.deliver_at_at = self.slot("deliver_at_ms")
        self.compress_at = self.slot("compress")

    cdef Py_ssize_t slot(self, str name) except -2:
        kind = self.encoder.message_type
        descriptor = getattr(kind, name, None)
        return slot_offset(<PyObject *>kind, <PyObject *>descriptor)

    def __dealloc__(self):
        for i in range(QUEUE_CACHE):
            Py_XDECREF(self.queues[i].topic)
            Py_XDECREF(self.queues[i].name)

    def close(self, uint32_t reason):
        """Take no puts, or leave dispatch to others, for this reason too; one step under the GIL."""
        self.closed_for |= reason

    def open(self, uint32_t reason):
        """This reason has passed; others may remain."""
        self.closed_for &= ~reason

    @property
    def is_behind(self):
        """Whether records wait to be dispatched."""
        return self.has_fallen_behind()

    cdef inline bint has_fallen_behind(self) noexcept:
        return self.tail is not None and self.fast_dispatch.log_offset != self.tail.base + self.tail.at

    def put(self, message):
        """Append and dispatch a plain message; returns its receipt, or None when this is not the plain case."""
        cdef int64_t stored_at
        cdef KnownQueue *queue
        if self.closed_for & PUT_REASONS or not self.is_plain(<PyObject *>message):
            return None
        stored_at = self.now()
        queue = self.queue_of(<PyObject *>message)
        receipt = None if queue == NULL else self.append(<PyObject *>message, queue, stored_at)
        if self.when_behind is not None and receipt is not None and self.has_fallen_behind():
            self.when_behind()
        return receipt

    def put_batch(self, messages):
        """The same for messages of one queue, as one write; returns a `batch_type`, or None."""
        if self.closed_for & PUT_REASONS or type(messages) is not list or not messages:
            return None
        for message in <list>messages:
            if not self.is_plain(<PyObject *>message):
                return None
        if not self.acquire(False):
            return None
        try:
            return self.append_batch(<list>messages, self.now())
        finally:
            self.release()

    def put_encoded(self, batch):
        """The same for messages that a client encoded as the body of one."""
        if self.closed_for & PUT_REASONS or not self.is_plain(<PyObject *>batch) or not self.acquire(False):
            return None
        try:
            return self.append_batch(batch, self.now())
        finally:
            self.release()

    cdef int64_t now(self) except? -1:
        cdef timespec now
        if self.now_ms is not None:
            return self.now_ms()
        clock_gettime(CLOCK_REALTIME, &now)
        return <int64_t>now.tv_sec * 1000 + now.tv_nsec // 1000000

    cdef bint is_plain(self, PyObject *message) noexcept:
        """Whether this is a message of the usual type that asks for nothing but to be stored."""
        cdef int32_t sys_flag, delay_level
        cdef PyObject *properties
        cdef PyObject *inner_count
        if Py_TYPE(message) != <void *>self.encoder.message_type or not self.encoder.has_slots:
            return False
        if self.delay_level_at < 0 or self.deliver_at_at < 0 or self.compress_at < 0 or not self.is_whole(message):
            return False
        if field(message, self.deliver_at_at) != Py_None or field(message, self.compress_at) != Py_None:
            return False
        if not int32_of(field(message, self.delay_level_at), &delay_level) or delay_level != 0:
            return False
        if not int32_of(field(message, self.encoder.slots[SYS_FLAG]), &sys_flag) or sys_flag & SPECIAL_FLAGS:
            return False
        properties = field(message, self.encoder.slots[PROPERTIES])
        if properties == Py_None:
            return True
        if properties == NULL or not PyDict_CheckExact(properties):
            return False
        return find_item(properties, <PyObject *>INNER_NUM, &inner_count) and inner_count == NULL

    cdef bint is_whole(self, PyObject *message) noexcept:
        """Whether the fields read here are set and have the usual types; else the long way raises the error."""
        cdef PyObject *topic = field(message, self.encoder.slots[TOPIC])
        cdef PyObject *queue_id = field(message, self.encoder.slots[QUEUE_ID])
        if topic == NULL or queue_id == NULL or field(message, self.encoder.slots[SYS_FLAG]) == NULL:
            return False
        if field(message, self.delay_level_at) == NULL:
            return False
        return PyUnicode_CheckExact(topic) and PyLong_CheckExact(queue_id)

    cdef KnownQueue *queue_of(self, PyObject *message) except? NULL:
        """The queue of a whole message; NULL for a queue id of more than 32 bits."""
        cdef PyObject *topic = field(message, self.encoder.slots[TOPIC])
        cdef int32_t queue_id = 0
        cdef KnownQueue *queue
        if not int32_of(field(message, self.encoder.slots[QUEUE_ID]), &queue_id):
            return NULL
        queue = &self.queues[queue_id & (QUEUE_CACHE - 1)]
        if queue.topic != topic or queue.queue_id != queue_id:
            name = (<object>topic, queue_id)
            Py_INCREF(topic)
            Py_INCREF(<PyObject *>name)
            Py_XDECREF(queue.topic)
            Py_XDECREF(queue.name)
            queue.topic, queue.queue_id, queue.name, queue.ordinal = topic, queue_id, <PyObject *>name, -1
            queue.hash = hash(name)
        return queue

    cdef append(self, PyObject *message, KnownQueue *queue, int64_t stored_at):
        cdef Tail tail = self.tail
        cdef Encoder encoder = self.encoder
        cdef int64_t queue_offset = 0
        cdef Py_ssize_t size, start
        cdef Plan plan
        cdef Facts facts
        cdef PyObject *known
        cdef object next_offset
        cdef PyObject *host
        if tail is None or tail.base + tail.at >= self.ready_until:
            return None
        known = get_known(<PyObject *>self.next_offsets, queue.name, queue.hash)
        if known == NULL and not is_absent():
            return None
        if known != NULL and not int64_of(known, &queue_offset):
            return None
        if ask_built_in(<PyObject *>self.locked):
            return None
        tail.check_writable()
        if not encoder.make_plan(message, Py_None, stored_at, &plan):
            return None
        memset(&facts, 0, sizeof(Facts))
        start = tail.at
        size = encoder.write(tail, &plan, queue_offset, stored_at, &facts)
        if size == 0:
            return None
        prefetch_room(tail, size)
        offset = 0 if known == NULL else <object>known
        next_offset = queue_offset + 1
        set_known(<PyObject *>self.next_offsets, queue.name, <PyObject *>next_offset, queue.hash)
        if not self.closed_for & DISPATCH_REASONS:
            self.fast_dispatch.last_queue = queue.ordinal
            self.dispatch_written(tail, start, &plan, &facts, queue_offset, stored_at)
            queue.ordinal = self.fast_dispatch.last_queue
        if stored_at != self.last_stored_at:
            self.last_stored_at, self.last_time = stored_at, stored_at
        if size != self.last_record_size:
            self.last_record_size, self.last_size = size, size
        host = field(message, encoder.slots[STORE_HOST])
        store_host = encoder.store_host if host == Py_None else <object>host
        return self.receipt_type(self.ok, tail.base + start, offset, self.last_size, self.last_time, store_host)

    cdef append_batch(self, messages, int64_t stored_at):
        cdef Tail tail = self.tail
        cdef Py_ssize_t start
        cdef PyObject *host
        if tail is None or (tail.gathered_at < 0 and tail.base + tail.at >= self.ready_until):
            return None
        first = (<list>messages)[0] if type(messages) is list else messages
        key = (first.topic, first.queue_id)
        queue_offset = self.next_offsets.get(key, 0)
        tail.check_writable()
        start = tail.at
        try:
            if first is messages:
                offsets = self.encoder.append_encoded(tail, messages, queue_offset, stored_at)
            else:
                offsets = self.encoder.append_batch(tail, messages, queue_offset, stored_at)
        except DiskFull:
            return None  # the usual way refuses it
        if offsets is None:
            return None
        self.next_offsets[key] = queue_offset + len(offsets) - 1
        if not self.closed_for & DISPATCH_REASONS:
            self.dispatch(tail, start, tail.at - start)
        host = field(<PyObject *>first, self.encoder.slots[STORE_HOST])
        store_host = self.encoder.store_host if host == Py_None else <object>host
        return self.batch_type(self.ok, offsets, queue_offset, stored_at, store_host)

    cdef inline bint may_dispatch(self, int64_t offset) noexcept:
        """Whether the log is dispatched up to this offset, and fast dispatch is free."""
        return not self.fast_dispatch.is_owned and not self.fast_dispatch.stopped_at_index and self.fast_dispatch.log_offset == offset

    cdef int dispatch_written(
        self,
        Tail tail,
        Py_ssize_t start,
        const Plan *plan,
        const Facts *facts,
        int64_t queue_offset,
        int64_t stored_at,
    ) except -1:
        """Dispatch the record just written, without parsing it: that would take longer than the rest of the put."""
        cdef FastDispatch fast_dispatch = self.fast_dispatch
        cdef Parts parts
        cdef int reason
        if not self.may_dispatch(tail.base + start):
            return 0
        # Read the topic from the log: setting the next offset may have run other code that freed the message's text.
        parts.topic.at = tail.data + start + plan.size - plan.properties_size - 2 - plan.topic.size
        parts.topic.size = plan.topic.size
        parts.queue_id = plan.queue_id
        parts.sys_flag = plan.sys_flag
        parts.size = plan.size
        parts.physical_offset = tail.base + start
        parts.queue_offset = queue_offset
        parts.store_timestamp = stored_at
        reason = fast_dispatch.run_one(&parts, facts, start)
        fast_dispatch.log_offset = tail.base + fast_dispatch.position
        fast_dispatch.stopped_at_index = reason == AT_INDEX
        return 0

    cdef int dispatch(self, Tail tail, Py_ssize_t start, Py_ssize_t size) except -1:
        """Dispatch the records just appended, if all earlier ones are dispatched and fast dispatch is free."""
        cdef FastDispatch fast_dispatch = self.fast_dispatch
        cdef const uint8_t *data = tail.data
        cdef int64_t base = tail.base
        cdef int reason
        if not self.may_dispatch(base + start):
            return 0
        if tail.gathered_at == start:  # in memory already; the file's pages may not be
            data, base, start = tail.gathered, base + start, 0
        reason = fast_dispatch.run_range(data, start, start + size, base, False)
        fast_dispatch.log_offset = base + fast_dispatch.position
        fast_dispatch.stopped_at_index = reason == AT_INDEX
        return 0
