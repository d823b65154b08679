/* Single bytes and words: big-endian numbers, Java's hash, UTF-8 as Java decodes it, property separators. */
#ifndef FLINTLOG_BYTES_H
#define FLINTLOG_BYTES_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

static inline int16_t get16(const uint8_t *at) {
    uint16_t v;
    memcpy(&v, at, 2);
    return (int16_t)__builtin_bswap16(v);
}
static inline int32_t get32(const uint8_t *at) {
    uint32_t v;
    memcpy(&v, at, 4);
    return (int32_t)__builtin_bswap32(v);
}
static inline int64_t get64(const uint8_t *at) {
    uint64_t v;
    memcpy(&v, at, 8);
    return (int64_t)__builtin_bswap64(v);
}
static inline void put16(uint8_t *at, int16_t value) {
    uint16_t v = __builtin_bswap16((uint16_t)value);
    memcpy(at, &v, 2);
}
static inline void put32(uint8_t *at, int32_t value) {
    uint32_t v = __builtin_bswap32((uint32_t)value);
    memcpy(at, &v, 4);
}
static inline void put64(uint8_t *at, int64_t value) {
    uint64_t v = __builtin_bswap64((uint64_t)value);
    memcpy(at, &v, 8);
}

/* memcpy for the short texts of a record, without the call. */
static inline void copy_short(uint8_t *to, const uint8_t *from, size_t size) {
    if (size > 32) {
        memcpy(to, from, size);
    } else if (size >= 16) {
        uint64_t a[2], b[2]; /* the two ends, which may overlap in the middle */
        memcpy(a, from, 16);
        memcpy(b, from + size - 16, 16);
        memcpy(to, a, 16);
        memcpy(to + size - 16, b, 16);
    } else if (size >= 8) {
        uint64_t a, b;
        memcpy(&a, from, 8);
        memcpy(&b, from + size - 8, 8);
        memcpy(to, &a, 8);
        memcpy(to + size - 8, &b, 8);
    } else if (size >= 4) {
        uint32_t a, b;
        memcpy(&a, from, 4);
        memcpy(&b, from + size - 4, 4);
        memcpy(to, &a, 4);
        memcpy(to + size - 4, &b, 4);
    } else {
        for (; size; size--) *to++ = *from++;
    }
}

/* Writes before this are visible to other threads before writes after it. */
static inline void write_barrier(void) { __atomic_thread_fence(__ATOMIC_RELEASE); }
static inline void prefetch_write(const void *at) { __builtin_prefetch(at, 1); }
static inline void prefetch_read(const void *at) { __builtin_prefetch(at, 0); }

/* q * 20, or -1 where that does not fit: no file can have such an entry. */
static inline int64_t entry_offset(int64_t queue_offset) {
    int64_t offset;
    return __builtin_mul_overflow(queue_offset, (int64_t)20, &offset) ? -1 : offset;
}

/* a % d by two multiplications, for many a and one d > 0: `inverse` is 2^64 / d, rounded up. It has 64 bits for 32-bit
   numbers, so its error never reaches the next remainder. A division takes several times as long. */
static inline uint64_t inverse_of(uint32_t d) { return UINT64_MAX / d + 1; }
static inline uint32_t remainder_of(uint32_t a, uint64_t inverse, uint32_t d) {
#if defined(__SIZEOF_INT128__)
    uint64_t fraction = inverse * a;
    return (uint32_t)(((unsigned __int128)fraction * d) >> 64);
#else
    (void)inverse;
    return a % d;
#endif
}

static inline int64_t wrapping_add(int64_t a, int64_t b) { return (int64_t)((uint64_t)a + (uint64_t)b); }

/* Java's hash, continued from `h` over four units at a time: one multiplication in the dependency chain. */
#define HASH4(h, a, b, c, d) ((h) * 923521u + (a) * 29791u + (b) * 961u + (c) * 31u + (d))

static inline uint32_t hash_latin1(uint32_t h, const uint8_t *at, size_t size) {
    for (; size >= 4; at += 4, size -= 4) h = HASH4(h, at[0], at[1], at[2], at[3]);
    for (; size; at++, size--) h = h * 31 + *at;
    return h;
}
static inline uint32_t hash_units(uint32_t h, const uint16_t *at, size_t size) {
    for (; size >= 4; at += 4, size -= 4) h = HASH4(h, at[0], at[1], at[2], at[3]);
    for (; size; at++, size--) h = h * 31 + *at;
    return h;
}
static inline uint32_t hash_point(uint32_t h, uint32_t point) {
    if (point < 0x10000) return h * 31 + point;
    point -= 0x10000;
    return (h * 31 + 0xD800 + (point >> 10)) * 31 + 0xDC00 + (point & 0x3FF);
}
static inline uint32_t hash_points(uint32_t h, const uint32_t *at, size_t size) {
    for (; size; at++, size--) h = hash_point(h, *at);
    return h;
}

/* Math.abs, and 0 for the one value that has none. */
static inline int32_t index_hash_of(uint32_t h) {
    int32_t value = (int32_t)h;
    if (value >= 0) return value;
    return value == INT32_MIN ? 0 : -value;
}

static inline int is_ascii(const uint8_t *at, size_t size) {
    uint64_t word, seen = 0;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        seen |= word;
    }
    for (; size; at++, size--) seen |= *at;
    return (seen & 0x8080808080808080u) == 0;
}

/* The next character of UTF-8 text that may be damaged. Whatever is malformed becomes U+FFFD as often as in
 * Java: once for each longest start of a good character, and once for a whole encoded surrogate. */
static inline uint32_t next_point(const uint8_t **place, const uint8_t *end) {
    const uint8_t *at = *place;
    uint32_t first = *at++, point, low = 0x80, high = 0xBF;
    int more;
    if (first < 0x80) {
        *place = at;
        return first;
    }
    if (first >= 0xC2 && first <= 0xDF) {
        more = 1, point = first & 0x1F;
    } else if (first >= 0xE0 && first <= 0xEF) {
        more = 2, point = first & 0x0F;
        if (first == 0xE0) low = 0xA0;
        if (first == 0xED && at < end && *at >= 0xA0 && *at <= 0xBF) {
            at++;
            if (at < end && (*at & 0xC0) == 0x80) at++;
            *place = at;
            return 0xFFFD;
        }
    } else if (first >= 0xF0 && first <= 0xF4) {
        more = 3, point = first & 0x07;
        if (first == 0xF0) low = 0x90;
        if (first == 0xF4) high = 0x8F;
    } else {
        *place = at;
        return 0xFFFD;
    }
    for (; more; more--, low = 0x80, high = 0xBF) {
        if (at >= end || *at < low || *at > high) {
            *place = at;
            return 0xFFFD;
        }
        point = point << 6 | (*at++ & 0x3F);
    }
    *place = at;
    return point;
}

static inline uint32_t hash_utf8(uint32_t h, const uint8_t *at, size_t size) {
    if (is_ascii(at, size)) return hash_latin1(h, at, size);
    for (const uint8_t *end = at + size; at < end;) h = hash_point(h, next_point(&at, end));
    return h;
}

/* Copy text as good UTF-8. Damaged text may grow to three times its size; returns the size written. */
static inline size_t copy_utf8(uint8_t *out, const uint8_t *at, size_t size) {
    if (is_ascii(at, size)) {
        memcpy(out, at, size);
        return size;
    }
    uint8_t *start = out;
    for (const uint8_t *end = at + size; at < end;) {
        const uint8_t *from = at;
        uint32_t point = next_point(&at, end);
        if (point == 0xFFFD) {
            memcpy(out, "\xEF\xBF\xBD", 3);
            out += 3;
        } else {
            memcpy(out, from, (size_t)(at - from));
            out += at - from;
        }
    }
    return (size_t)(out - start);
}

/* Whether text in good UTF-8 holds characters that a directory's name must not: separators, control characters. */
static inline int has_control(const uint8_t *at, size_t size) {
    for (size_t i = 0; i < size; i++) {
        if (at[i] < 0x20 || at[i] == 0x7F || at[i] == '/' || at[i] == '\\') return 1;
        if (at[i] == 0xC2 && i + 1 < size && at[i + 1] < 0xA0) return 1;
    }
    return 0;
}

/* Whether one of 8 bytes is 0x01 or 0x02. Exclusive or makes it 0; taking 1 from every byte then sets a high bit that
 * was not set, in the lowest byte that is 0 and in none if no byte is. */
static inline unsigned word_has_separator(const uint8_t *at) {
    const uint64_t ones = 0x0101010101010101u;
    uint64_t word, first, second;
    memcpy(&word, at, 8);
    first = word ^ ones;
    second = word ^ (ones << 1);
    return ((((first - ones) & ~first) | ((second - ones) & ~second)) & (ones << 7)) != 0;
}

/* Whether text holds 0x01 or 0x02. */
static inline int has_separator(const uint8_t *at, size_t size) {
    unsigned found = 0;
    if (size >= 8) { /* by words; the last one may begin inside of the one before */
        const uint8_t *last = at + size - 8;
        for (; at < last; at += 8) found |= word_has_separator(at);
        return (int)(found | word_has_separator(last));
    }
    for (size_t i = 0; i < size; i++) found |= (unsigned)((uint8_t)(at[i] - 1) < 2);
    return (int)found;
}

/* The first byte of at..end that is 0x02 (or 0x01, if `names`); `end` if there is none. Bytes up to `limit`
 * (not before `end`) may be read. */
static inline const uint8_t *find_separator(const uint8_t *at, const uint8_t *end, const uint8_t *limit, int names) {
#if defined(__SSE2__)
    const __m128i pair = _mm_set1_epi8(2), name = _mm_set1_epi8(names ? 1 : 2);
    for (; at < end && limit - at >= 16; at += 16) {
        __m128i chunk = _mm_loadu_si128((const __m128i *)at);
        __m128i hit = _mm_or_si128(_mm_cmpeq_epi8(chunk, pair), _mm_cmpeq_epi8(chunk, name));
        unsigned mask = (unsigned)_mm_movemask_epi8(hit);
        if (mask) {
            at += __builtin_ctz(mask);
            return at < end ? at : end;
        }
    }
#else
    (void)limit;
#endif
    for (; at < end; at++)
        if (*at == 2 || (names && *at == 1)) return at;
    return end;
}

/* A hash for our own tables; the seed prevents forged collisions. */
static inline uint64_t table_hash(const uint8_t *at, size_t size, uint64_t seed) {
    uint64_t h = seed ^ (uint64_t)size, word;
    for (; size >= 8; at += 8, size -= 8) {
        memcpy(&word, at, 8);
        h = (h ^ word) * 0x9E3779B97F4A7C15u;
        h ^= h >> 29;
    }
    word = 0;
    memcpy(&word, at, size);
    h = (h ^ word) * 0x9E3779B97F4A7C15u;
    return h ^ (h >> 32);
}

/* The decimal digits of a number; at most 11 characters. */
static inline int put_decimal(uint8_t *out, int32_t value) {
    uint8_t digits[10];
    int count = 0, size = 0;
    uint32_t left = value < 0 ? 0u - (uint32_t)value : (uint32_t)value;
    do digits[count++] = (uint8_t)('0' + left % 10);
    while (left /= 10);
    if (value < 0) out[size++] = '-';
    while (count) out[size++] = digits[--count];
    return size;
}

static inline void put_hex(uint8_t *out, const uint8_t *at, size_t size) {
    static const char digits[] = "0123456789ABCDEF";
    for (; size; at++, size--) {
        *out++ = (uint8_t)digits[*at >> 4];
        *out++ = (uint8_t)digits[*at & 15];
    }
}

/* A packed host (8 or 20 bytes) as text, IPv6 in Python's compressed form; at most 53 characters. */
static inline int put_host(uint8_t *out, const uint8_t *packed, int packed_size) {
    uint8_t *start = out;
    if (packed_size == 8) {
        for (int i = 0; i < 4; i++) {
            out += put_decimal(out, packed[i]);
            *out++ = i < 3 ? '.' : ':';
        }
        return (int)(out - start) + put_decimal(out, get32(packed + 4));
    }
    int run_at = -1, run = 1; /* a single zero group is not compressed */
    for (int i = 0; i < 8;) {
        int n = 0;
        while (i + n < 8 && packed[2 * (i + n)] == 0 && packed[2 * (i + n) + 1] == 0) n++;
        if (n > run) run_at = i, run = n;
        i += n ? n : 1;
    }
    *out++ = '[';
    for (int i = 0; i < 8; i++) {
        if (i == run_at) {
            *out++ = ':';
            *out++ = ':';
            i += run - 1;
            continue;
        }
        if (i > 0 && i != run_at + run) *out++ = ':';
        uint32_t group = (uint32_t)packed[2 * i] << 8 | packed[2 * i + 1];
        int shift = group > 0xFFF ? 12 : group > 0xFF ? 8 : group > 0xF ? 4 : 0;
        for (; shift >= 0; shift -= 4) *out++ = (uint8_t)"0123456789abcdef"[group >> shift & 15];
    }
    *out++ = ']';
    *out++ = ':';
    return (int)(out - start) + put_decimal(out, get32(packed + packed_size - 4));
}

#endif
