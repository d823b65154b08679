# The encoder: from messages to records at the tail of the log, by way of a plan.

cdef int move_on(moves) except -1:
    """Set the next offsets of an append; nothing here lets Python run other code."""
    if moves is not None:
        table, new, other_table, other_new = <tuple>moves
        PyDict_Update(table, new)
        PyDict_Update(other_table, other_new)
    return 0


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

    def append(self, Tail tail not None, message, queue_offset, store_timestamp, properties=None, moves=None):
        """Write one record and return its size; 0 (END_OF_FILE) when the file has no room for it."""
        cdef Plan plan
        cdef int64_t offset_in_queue, stored_at
        cdef Py_ssize_t size
        tail.check_writable()
        if (
            not int64_of(<PyObject *>queue_offset, &offset_in_queue)
            or not int64_of(<PyObject *>store_timestamp, &stored_at)
            or not self.make_plan(<PyObject *>message, <PyObject *>properties, stored_at, &plan)
        ):
            return self.append_plainly(tail, message, queue_offset, store_timestamp, properties, moves)
        if tail.lacks_room(plan.size):
            tail.make_room(plan.size + END_RESERVE)  # other code runs: the plan no longer stands
            return self.append(tail, message, queue_offset, store_timestamp, properties, moves)
        size = self.write(tail, &plan, offset_in_queue, stored_at, NULL)
        if size:
            move_on(moves)
        return size

    cdef Py_ssize_t write(
        self, Tail tail, const Plan *plan, int64_t offset_in_queue, int64_t stored_at, Facts *facts
    ) noexcept:
        """Write a planned record into a tail that is known to be writable; its size, or 0 when there is no room."""
        if <Py_ssize_t>plan.size + END_RESERVE > tail.allocated - tail.at:
            return 0
        write_record(
            tail.data + tail.at, plan, offset_in_queue, tail.base + tail.at, stored_at, self.append_crc, facts
        )
        tail.store_timestamp = stored_at
        tail.gathered_at = -1
        tail.at += plan.size
        return plan.size

    cdef append_plainly(self, Tail tail, message, queue_offset, store_timestamp, properties, moves):
        cdef bytes record = self.plain.encode(message, queue_offset, tail.end, store_timestamp, properties)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(record)
        if tail.lacks_room(size):
            tail.make_room(size + END_RESERVE)
        tail.check_writable()  # other code ran
        if size + END_RESERVE > tail.size - tail.at:
            return 0
        publish(tail.data + tail.at, <const uint8_t *>PyBytes_AS_STRING(record), size)
        tail.take_written(tail.data + tail.at, size, store_timestamp)
        move_on(moves)
        return size

    def append_batch(self, Tail tail not None, messages, queue_offset, store_timestamp, moves=None):
        """Write the messages of one queue one after another, all or none.

        Returns where each record starts, and the end; None when the file has no room for all of them.
        """
        cdef list items = list(messages)
        cdef list bodies = []  # keeps the bodies alive until they are written
        cdef array.array offsets
        cdef Growing frames
        cdef Py_ssize_t total
        cdef uint8_t *into
        tail.check_writable()
        if not items:
            raise InvalidMessage("a batch has at least one message")
        offsets = array.clone(INT64_ARRAY, len(items) + 1, False)
        memset(&frames, 0, sizeof(Growing))
        try:
            total = self.plan_batch(
                items, tail.base + tail.at, queue_offset, store_timestamp, offsets.data.as_longlongs, bodies, &frames
            )
            if tail.lacks_room(total):
                tail.make_room(total + END_RESERVE)
            tail.check_writable()  # other code may have run
            if total + END_RESERVE > tail.size - tail.at:
                return None
            into = tail.room_for(total)
            write_batch(into, bodies, frames.data, <int64_t *>offsets.data.as_longlongs, self.append_crc)
            tail.take_written(into, total, store_timestamp)
            move_on(moves)
        finally:
            free(frames.data)
        return offsets

    def append_encoded(self, Tail tail not None, batch, queue_offset, store_timestamp, moves=None):
        """Write the messages that a client encoded as the body of `batch`, as `append_batch` would."""
        cdef Plan plan
        cdef int64_t offset_in_queue, stored_at
        cdef Py_ssize_t total = 0, count = 0
        cdef array.array offsets
        cdef uint8_t *into
        tail.check_writable()
        if (
            not int64_of(<PyObject *>queue_offset, &offset_in_queue)
            or offset_in_queue >= MAX_BASE
            or not int64_of(<PyObject *>store_timestamp, &stored_at)
            or not self.make_plan(<PyObject *>batch, Py_None, stored_at, &plan)
            or not measure_encoded(&plan, self.append_crc, &total, &count)
        ):
            return self.append_encoded_plainly(tail, batch, queue_offset, store_timestamp, moves)
        if total + END_RESERVE > tail.size - tail.at:
            return None
        if tail.lacks_room(total):
            tail.make_room(total + END_RESERVE)  # other code runs: the plan no longer stands
            return self.append_encoded(tail, batch, queue_offset, store_timestamp, moves)
        # Making the array runs no code of others, so the plan still stands.
        offsets = array.clone(INT64_ARRAY, count + 1, False)
        into = tail.room_for(total)
        write_encoded(
            into, tail.end_offset(), &plan, offset_in_queue, stored_at, self.append_crc, offsets.data.as_longlongs
        )
        tail.take_written(into, total, stored_at)
        move_on(moves)
        return offsets

    cdef append_encoded_plainly(self, Tail tail, batch, queue_offset, store_timestamp, moves):
        cdef uint8_t *into
        records, offsets = self.plain.encode_encoded(batch, queue_offset, tail.end, store_timestamp)
        cdef Py_ssize_t size = PyBytes_GET_SIZE(records)
        if tail.lacks_room(size):
            tail.make_room(size + END_RESERVE)
        tail.check_writable()  # other code ran
        if size + END_RESERVE > tail.size - tail.at:
            return None
        into = tail.room_for(size)
        publish(into, <const uint8_t *>PyBytes_AS_STRING(records), size)
        tail.take_written(into, size, store_timestamp)
        move_on(moves)
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
        cdef int32_t frame_size, after_size
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
            after_size = tail_size(&plan)
            frame_size = plan.size - plan.body.size
            frame = more(frames, sizeof(int32_t) + frame_size)
            if frame == NULL:
                raise MemoryError
            frames.size += sizeof(int32_t) + frame_size
            memcpy(frame, &after_size, sizeof(int32_t))
            frame += sizeof(int32_t)
            write_start(frame, &plan)
            write_head(frame, &plan, offset_in_queue + i, starts[i], stored_at)
            write_tail(frame + frame_size - after_size, &plan, NULL)
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
            if not find_item(<PyObject *>self.hosts, host, &packed) or packed == NULL:
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
