// A control message: once as its head says, and its fields as those of every type. What decodes must encode
// to the same bytes, and an error from a peer must have become harmless text.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "proto/message.h"

static void check_text(const char *text, size_t room)
{
    size_t len = strnlen(text, room);
    assert(len < room);
    for (size_t i = 0; i < len; i++)
        assert((unsigned char)text[i] >= 0x20 && text[i] != 0x7f);
}

static void check_err(const struct msg_fail *fail)
{
    struct err err;
    char line[256];
    message_to_err(fail, &err);
    assert(err.class > ERR_NONE && err.class < ERR_CLASS_COUNT);
    check_text(err.op, sizeof(err.op));
    check_text(err.node, sizeof(err.node));
    check_text(err.path, sizeof(err.path));
    check_text(err.text, sizeof(err.text));
    check_text(err_line(&err, line, sizeof(line)), sizeof(line));
}

static void try_fields(uint16_t type, const uint8_t *fields, size_t len)
{
    struct message m;
    if (message_decode(type, fields, len, &m) < 0)
        return;
    assert(m.type == type && strcmp(message_name(type), "?") != 0);
    size_t room = MESSAGE_HEAD_BYTES + len;
    uint8_t *again = malloc(room);
    assert(again != NULL);
    int64_t n = message_encode(&m, again, room);
    assert(n == (int64_t)room && memcmp(again + MESSAGE_HEAD_BYTES, fields, len) == 0);
    uint32_t told_len;
    uint16_t told_type;
    int rc = message_head(again, len, &told_len, &told_type);
    assert(rc == 0 && told_len == len && told_type == type);
    free(again);
    if (type == MESSAGE_FAIL)
        check_err(&m.fail);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t len)
{
    uint32_t fields;
    uint16_t type;
    if (len < MESSAGE_HEAD_BYTES)
        return 0;
    size_t rest = len - MESSAGE_HEAD_BYTES;
    int rc = message_head(data, MESSAGE_BYTES_MAX, &fields, &type);
    assert(rc == 0 || rc == -EMSGSIZE);
    if (rc == 0 && fields <= rest)
        try_fields(type, data + MESSAGE_HEAD_BYTES, fields);
    for (uint16_t every = 0; every <= MESSAGE_TYPES; every++)
        try_fields(every, data + MESSAGE_HEAD_BYTES, rest);
    return 0;
}
