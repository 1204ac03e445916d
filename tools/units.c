#include "tools/units.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct unit {
    const char *name; // letters in any case
    uint64_t factor;
};

static const struct unit size_units[] = {
    {"K", UINT64_C(1) << 10},   {"M", UINT64_C(1) << 20},   {"G", UINT64_C(1) << 30},
    {"T", UINT64_C(1) << 40},   {"KiB", UINT64_C(1) << 10}, {"MiB", UINT64_C(1) << 20},
    {"GiB", UINT64_C(1) << 30}, {"TiB", UINT64_C(1) << 40},
};

static const struct unit rate_units[] = {
    {"bit/s", 1},     {"k", 1000},         {"M", 1000000},         {"G", 1000000000},
    {"kbit/s", 1000}, {"Mbit/s", 1000000}, {"Gbit/s", 1000000000},
};

static const struct unit time_units[] = {{"s", 1}, {"m", 60}, {"h", 3600}};

static int parse(const char *text, const struct unit *units, size_t unit_count, uint64_t *out)
{
    uint64_t value = 0, factor = 1;
    size_t digits = strspn(text, "0123456789");
    bool over = false;
    for (size_t i = 0; i < digits; i++)
        over = over || __builtin_mul_overflow(value, 10, &value) ||
               __builtin_add_overflow(value, (uint64_t)(text[i] - '0'), &value);
    if (digits == 0)
        return -EINVAL;
    if (text[digits] != '\0') {
        size_t i = 0;
        while (i < unit_count && strcasecmp(text + digits, units[i].name) != 0)
            i++;
        if (i == unit_count)
            return -EINVAL;
        factor = units[i].factor;
    }
    if (over || __builtin_mul_overflow(value, factor, &value))
        return -ERANGE;
    *out = value;
    return 0;
}

int units_parse_count(const char *text, uint64_t *out)
{
    return parse(text, NULL, 0, out);
}

int units_parse_size(const char *text, uint64_t *bytes)
{
    return parse(text, size_units, ARRAY_LEN(size_units), bytes);
}

int units_parse_rate(const char *text, uint64_t *bits)
{
    return parse(text, rate_units, ARRAY_LEN(rate_units), bits);
}

int units_parse_time(const char *text, uint64_t *seconds)
{
    return parse(text, time_units, ARRAY_LEN(time_units), seconds);
}

const char *units_bytes(uint64_t bytes, char out[UNITS_TEXT_BYTES])
{
    return words_bytes(bytes, out);
}

const char *units_rate(double bytes_per_s, char out[UNITS_TEXT_BYTES])
{
    static const char *const names[] = {"bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"};
    double bits = bytes_per_s > 0 ? bytes_per_s * 8 : 0; // not a number is none either
    return words_scaled(bits < 1e18 ? bits : 1e18, 1000, names, ARRAY_LEN(names), out);
}

const char *units_seconds(double seconds, char out[UNITS_TEXT_BYTES])
{
    double s = seconds > 0 ? seconds : 0;
    s = s < 1e15 ? s : 1e15;
    uint64_t minutes = (uint64_t)(s / 60 + 0.5);
    if (s < 9.995)
        snprintf(out, UNITS_TEXT_BYTES, "%.2f s", s);
    else if (s < 599.95)
        snprintf(out, UNITS_TEXT_BYTES, "%.1f s", s);
    else if (minutes < 60)
        snprintf(out, UNITS_TEXT_BYTES, "%.0f s", s);
    else
        snprintf(out, UNITS_TEXT_BYTES, "%llu h %02llu min", (unsigned long long)(minutes / 60),
                 (unsigned long long)(minutes % 60));
    return out;
}

const char *units_clock(uint64_t seconds, char out[UNITS_TEXT_BYTES])
{
    unsigned long long h = seconds / 3600, m = seconds / 60 % 60, s = seconds % 60;
    if (h > 99)
        snprintf(out, UNITS_TEXT_BYTES, "over 99 h");
    else if (h > 0)
        snprintf(out, UNITS_TEXT_BYTES, "%llu:%02llu:%02llu", h, m, s);
    else
        snprintf(out, UNITS_TEXT_BYTES, "%llu:%02llu", m, s);
    return out;
}
