/* CRC-32 (the polynomial of zlib), by carry-less multiplication where the processor has it.
 *
 * Folding keeps four 128-bit remainders and moves each over 64 bytes with two multiplications; what is
 * left is reduced to 32 bits at the end (Gopal et al., "Fast CRC Computation for Generic Polynomials Using
 * PCLMULQDQ Instruction", Intel 2009). The constants are powers of x modulo the polynomial, bit-reflected.
 * Fewer than 16 bytes, and everything on other processors, go through tables, 8 bytes a step.
 */
#ifndef FLINTLOG_CRC32_H
#define FLINTLOG_CRC32_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__)
#define FLINTLOG_FOLDING 1
#include <immintrin.h>
#else
#define FLINTLOG_FOLDING 0
#endif

static uint32_t crc_table[8][256];
static int crc_can_fold;

static void crc_prepare(void) {
    for (uint32_t i = 0; i < 256; i++) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; bit++) value = (value >> 1) ^ (0xEDB88320u & (0u - (value & 1)));
        crc_table[0][i] = value;
    }
    for (uint32_t i = 0; i < 256; i++)
        for (int k = 1; k < 8; k++)
            crc_table[k][i] = (crc_table[k - 1][i] >> 8) ^ crc_table[0][crc_table[k - 1][i] & 0xFF];
#if FLINTLOG_FOLDING
    __builtin_cpu_init();
    crc_can_fold = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1");
#endif
}

static inline uint32_t crc_by_table(uint32_t crc, const uint8_t *data, size_t size) {
    for (; size >= 8; data += 8, size -= 8) {
        uint64_t word;
        memcpy(&word, data, 8); /* the build refuses big-endian machines */
        word ^= crc;
        crc = crc_table[7][word & 0xFF] ^ crc_table[6][(word >> 8) & 0xFF] ^ crc_table[5][(word >> 16) & 0xFF] ^
              crc_table[4][(word >> 24) & 0xFF] ^ crc_table[3][(word >> 32) & 0xFF] ^
              crc_table[2][(word >> 40) & 0xFF] ^ crc_table[1][(word >> 48) & 0xFF] ^ crc_table[0][word >> 56];
    }
    for (; size; data++, size--) crc = (crc >> 8) ^ crc_table[0][(crc ^ *data) & 0xFF];
    return crc;
}

#if FLINTLOG_FOLDING
#define CRC_LOAD(at) _mm_loadu_si128((const __m128i *)(at))
#define CRC_FOLD(x, k) _mm_xor_si128(_mm_clmulepi64_si128(x, k, 0x00), _mm_clmulepi64_si128(x, k, 0x11))

/* `size` is a multiple of 16 and at least 16. */
__attribute__((target("pclmul,sse4.1"))) static uint32_t crc_by_folding(uint32_t crc, const uint8_t *data,
                                                                        size_t size) {
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596, 0x0154442bd4);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009e, 0x01751997d0);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124);
    const __m128i polynomial = _mm_set_epi64x(0x01f7011641, 0x01db710641);
    const __m128i low_words = _mm_setr_epi32(-1, 0, -1, 0);
    __m128i x = _mm_xor_si128(CRC_LOAD(data), _mm_cvtsi32_si128((int)crc));
    if (size >= 64) {
        __m128i y = CRC_LOAD(data + 16), z = CRC_LOAD(data + 32), w = CRC_LOAD(data + 48);
        for (data += 64, size -= 64; size >= 64; data += 64, size -= 64) {
            x = _mm_xor_si128(CRC_FOLD(x, by_64), CRC_LOAD(data));
            y = _mm_xor_si128(CRC_FOLD(y, by_64), CRC_LOAD(data + 16));
            z = _mm_xor_si128(CRC_FOLD(z, by_64), CRC_LOAD(data + 32));
            w = _mm_xor_si128(CRC_FOLD(w, by_64), CRC_LOAD(data + 48));
        }
        x = _mm_xor_si128(CRC_FOLD(x, by_16), y);
        x = _mm_xor_si128(CRC_FOLD(x, by_16), z);
        x = _mm_xor_si128(CRC_FOLD(x, by_16), w);
    } else {
        data += 16, size -= 16;
    }
    for (; size; data += 16, size -= 16) x = _mm_xor_si128(CRC_FOLD(x, by_16), CRC_LOAD(data));
    /* 128 bits to 64, to 32, and Barrett's reduction. */
    x = _mm_xor_si128(_mm_srli_si128(x, 8), _mm_clmulepi64_si128(x, by_16, 0x10));
    x = _mm_xor_si128(_mm_srli_si128(x, 4), _mm_clmulepi64_si128(_mm_and_si128(x, low_words), by_8, 0x00));
    __m128i q = _mm_clmulepi64_si128(_mm_and_si128(x, low_words), polynomial, 0x10);
    q = _mm_clmulepi64_si128(_mm_and_si128(q, low_words), polynomial, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(x, q), 1);
}
#endif

/* Continue a running sum over more bytes; it begins with all bits set. */
static inline uint32_t crc_more(uint32_t crc, const uint8_t *data, size_t size) {
#if FLINTLOG_FOLDING
    if (crc_can_fold && size >= 16) {
        size_t whole = size & ~(size_t)15;
        crc = crc_by_folding(crc, data, whole);
        data += whole, size -= whole;
    }
#endif
    return crc_by_table(crc, data, size);
}

/* The sum as records hold it: without its top bit. */
static inline uint32_t crc_of(const uint8_t *data, size_t size) {
    return ~crc_more(0xFFFFFFFFu, data, size) & 0x7FFFFFFFu;
}

#endif
