// The parts of a receipt: an entry (also as it comes in ENTRIES_DONE and CHECK), the job, its end; and the
// results of CHECKED. The first byte chooses. What is accepted must be written again as the same bytes.
#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "mover/receipt_file.h"
#include "proto/check.h"
#include "proto/record.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum part { PART_ENTRY, PART_JOB, PART_END, PART_FILE, PART_RESULTS, PARTS };

static int64_t results_again(const uint8_t *data, size_t size, uint8_t *out)
{
    struct receipt_entry entry = {.type = ENTRY_FILE, .path = blob_text("f")};
    struct check_result result;
    struct wire_reader r;
    struct wire_writer w;
    struct err err;
    wire_reader_init(&r, data, size);
    wire_writer_init(&w, out, size);
    while (wire_left(&r) > 0) {
        if (check_get(&r, &result) < 0)
            return -1;
        check_put(&w, &result);
        check_err(&result, &entry, &err);
    }
    return wire_written(&w);
}

// Decodes and encodes again: bytes written, or -1 when it was refused.
static int64_t again(enum part part, const uint8_t *data, size_t size, uint8_t *out)
{
    struct receipt_entry entry;
    struct receipt_job job;
    struct receipt_end end;
    switch (part) {
    case PART_ENTRY:
        if (receipt_entry_decode(data, size, &entry) < 0)
            return -1;
        assert(entry.path.len == 0 || manifest_path_safe(entry.path.bytes, entry.path.len));
        return receipt_entry_encode(&entry, out, size);
    case PART_JOB:
        return receipt_job_decode(data, size, &job) < 0 ? -1 : receipt_job_encode(&job, out, size);
    case PART_END:
        return receipt_end_decode(data, size, &end) < 0 ? -1 : receipt_end_encode(&end, out, size);
    case PART_RESULTS:
        return results_again(data, size, out);
    case PART_FILE:
    case PARTS:
        break;
    }
    return -1;
}

static void put_record(int fd, struct record_chain *chain, uint16_t type, const void *payload, size_t len)
{
    size_t room = len + RECORD_FRAME_BYTES;
    uint8_t *bytes = malloc(room);
    assert(bytes != NULL && record_encode(chain, type, payload, len, bytes, room) == (int64_t)room);
    assert(write(fd, bytes, room) == (ssize_t)room);
    free(bytes);
}

// A whole file with checksums that fit, the bytes as its entries: read to the end or refused, and then as a
// whole.
static void try_file(const uint8_t *data, size_t size)
{
    struct record_header head = {.kind = RECORD_RECEIPT, .version = RECEIPT_VERSION};
    struct receipt_job job = {.started_s = 1};
    struct receipt_end end = {.ended_s = 2};
    uint8_t head_bytes[RECORD_HEADER_BYTES], fields[128];
    struct record_chain chain;
    struct receipt_reader *r;
    struct receipt_entry entry;
    struct err err;
    char path[64];
    int fd = memfd_create("receipt", MFD_CLOEXEC);
    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    record_header_encode(&head, head_bytes, &chain);
    assert(fd >= 0 && write(fd, head_bytes, sizeof(head_bytes)) == sizeof(head_bytes));
    put_record(fd, &chain, RECEIPT_JOB, fields, (size_t)receipt_job_encode(&job, fields, sizeof(fields)));
    put_record(fd, &chain, RECEIPT_ENTRIES, data, size);
    put_record(fd, &chain, RECEIPT_END, fields, (size_t)receipt_end_encode(&end, fields, sizeof(fields)));
    if (receipt_reader_open(path, &r, &err) == 0) {
        int rc;
        while ((rc = receipt_reader_next(r, &entry)) > 0)
            assert(entry.path.len == 0 || manifest_path_safe(entry.path.bytes, entry.path.len));
        assert(rc == 0); // it was accepted as a whole
        receipt_reader_free(r);
    }
    close(fd);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size == 0 || size > RECORD_PAYLOAD_MAX)
        return 0;
    enum part part = data[0] % PARTS;
    if (part == PART_FILE) {
        try_file(data + 1, size - 1);
        return 0;
    }
    uint8_t *out = malloc(size);
    assert(out != NULL);
    int64_t len = again(part, data + 1, size - 1, out);
    assert(len < 0 || ((size_t)len == size - 1 && memcmp(out, data + 1, size - 1) == 0));
    free(out);
    return 0;
}
