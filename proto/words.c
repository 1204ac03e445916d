#include "proto/words.h"

#include <stdio.h>

const char *words_scaled(double value, double step, const char *const *names, size_t count,
                         char out[WORDS_BYTES])
{
    size_t i = 0;
    // 999.5 would be printed as 1000.
    while (i + 1 < count && value >= (step == 1000 ? 999.5 : 1023.5)) {
        value /= step;
        i++;
    }
    int decimals = i == 0 || value >= 99.95 ? 0 : value >= 9.995 ? 1 : 2;
    snprintf(out, WORDS_BYTES, "%.*f %s", decimals, value, names[i]);
    return out;
}

const char *words_bytes(uint64_t bytes, char out[WORDS_BYTES])
{
    static const char *const names[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    return words_scaled((double)bytes, 1024, names, ARRAY_LEN(names), out);
}
