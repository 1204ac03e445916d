// Test vectors are written in hex.
#ifndef PENSTOCK_TESTS_UNIT_HEX_H
#define PENSTOCK_TESTS_UNIT_HEX_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

static inline unsigned hex_digit(char c)
{
    static const char digits[] = "0123456789abcdef";
    const char *at = strchr(digits, c);
    assert(c != '\0' && at != NULL);
    return (unsigned)(at - digits);
}

// The bytes that `hex` spells, of which there are at most out_len; returns how many.
static inline size_t hex_bytes(const char *hex, uint8_t *out, size_t out_len)
{
    size_t len = strlen(hex) / 2;
    assert(len <= out_len && strlen(hex) % 2 == 0);
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)(hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1]));
    return len;
}

// Whether the `len` bytes are what `hex` spells.
static inline bool hex_equal(const void *bytes, size_t len, const char *hex)
{
    const uint8_t *in = bytes;
    if (strlen(hex) != 2 * len)
        return false;
    for (size_t i = 0; i < len; i++) {
        if (in[i] != (hex_digit(hex[2 * i]) << 4 | hex_digit(hex[2 * i + 1])))
            return false;
    }
    return true;
}

// Bytes that count up from `first`.
static inline void count_up(uint8_t *out, size_t len, uint8_t first)
{
    for (size_t i = 0; i < len; i++)
        out[i] = (uint8_t)(first + i);
}

#endif
