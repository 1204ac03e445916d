// A need: the input is the answer to a segment with every kind of file. Once as it comes, and once with a
// head that fits, so that the rules behind it are reached. What decodes must encode to the same bytes, and
// its layout must hold together.
#include "tests/fuzz/layout_check.h"

#include "proto/wire.h"

enum { SEGMENT = 7, HEAD_BYTES = 16 };

static struct entry file(const char *path, uint64_t size)
{
    return (struct entry){
        .type = ENTRY_FILE,
        .mode = 0644,
        .size = size,
        .path = (const uint8_t *)path,
        .path_len = (uint32_t)strlen(path),
    };
}

static struct segment *asked(void)
{
    static const struct range near[] = {{0, 4096}, {3 * MIB, 3 * MIB}, {9 * MIB, 8192}},
                              far[] = {{UINT64_C(1) << 40, MIB}, {UINT64_C(1) << 60, 4096}};
    struct entry entries[] = {
        file("small", 10000),     file("large", 100 * MIB + 1),
        file("holes", 20 * MIB),  file("far", FILE_BYTES_MAX),
        file("hollow", 20 * MIB), file("empty", 0),
        file("dir", 0),
    };
    entries[2].sparse = entries[3].sparse = entries[4].sparse = true;
    entries[2].data = near;
    entries[2].data_count = ARRAY_LEN(near);
    entries[3].data = far;
    entries[3].data_count = ARRAY_LEN(far);
    entries[6].type = ENTRY_DIR;
    struct segment_builder *b = segment_builder_new();
    assert(b != NULL);
    segment_builder_begin(b, SEGMENT);
    for (size_t i = 0; i < ARRAY_LEN(entries); i++) {
        int rc = segment_builder_add(b, &entries[i]);
        assert(rc == 0);
    }
    size_t len;
    const uint8_t *bytes = segment_builder_end(b, true, &len);
    struct segment *s = NULL;
    int rc = segment_decode(bytes, len, &s);
    assert(rc == 0);
    segment_builder_free(b);
    return s;
}

static void try_need(const struct segment *s, const uint8_t *bytes, size_t len)
{
    struct need *n = NULL;
    if (need_decode(bytes, len, s, &n) < 0)
        return;
    uint8_t *again = malloc(len);
    assert(again != NULL);
    int64_t again_len = need_encode(n, again, len);
    assert(again_len == (int64_t)len && memcmp(again, bytes, len) == 0);
    check_layout(s, n, (uint32_t)STRIPE_BYTES_MIN << len % 5);
    free(again);
    need_free(n);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    struct segment *s = asked();
    try_need(s, data, len);
    if (len >= HEAD_BYTES) {
        uint8_t *copy = malloc(len);
        assert(copy != NULL);
        memcpy(copy, data, len);
        struct wire_writer w;
        wire_writer_init(&w, copy, HEAD_BYTES);
        wire_put_bytes(&w, "PSKN", 4);
        wire_put_u32(&w, s->entry_count);
        wire_put_u64(&w, SEGMENT);
        try_need(s, copy, len);
        free(copy);
    }
    segment_free(s);
    return 0;
}
