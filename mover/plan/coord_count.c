// Entries as they are settled, and what goes wrong with them: the counters of the job and its exit status.
#include <assert.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "mover/plan/coord_state.h"
#include "proto/receipt.h"
#include "proto/words.h"

uint64_t count_settled(const struct coord_counters *n)
{
    return n->moved + n->skipped + n->changed + n->vanished + n->failed;
}

uint64_t count_unclosed(const struct coord *c)
{
    uint64_t entries = 0;
    for (const struct coord_segment *s = c->segments; s != NULL; s = s->after)
        entries += s->closed ? 0 : s->recorded + s->left;
    return entries;
}

// The exit status says what the counters say, whatever the problem that is told beside it.
static void count_outcome(struct coord *c, enum receipt_outcome outcome)
{
    struct coord_counters *n = &c->counters;
    enum err_class class = ERR_NONE;
    switch (outcome) {
    case RECEIPT_MOVED:
        n->moved++;
        break;
    case RECEIPT_SKIPPED:
        n->skipped++;
        break;
    case RECEIPT_CHANGED:
        n->changed++;
        class = ERR_CHANGED;
        break;
    case RECEIPT_VANISHED:
        n->vanished++;
        class = ERR_VANISHED;
        break;
    case RECEIPT_FAILED:
        n->failed++;
        class = ERR_ENTRY;
        break;
    }
    c->exit_status = err_exit_worse(c->exit_status, err_class_exit(class));
}

// So many records, all of which can be read, and none of them of an entry that moved unless `moved`.
// -1: they cannot be.
static int64_t count_records(const struct blob *records, bool moved)
{
    struct wire_reader r;
    wire_reader_init(&r, records->bytes, records->len);
    int64_t count = 0;
    for (; wire_left(&r) > 0; count++) {
        size_t len;
        const uint8_t *bytes = wire_get_blob(&r, records->len, &len);
        struct receipt_entry e;
        if (bytes == NULL || receipt_entry_decode(bytes, len, &e) < 0)
            return -1;
        if (!moved && (e.outcome == RECEIPT_MOVED || e.outcome == RECEIPT_SKIPPED))
            return -1;
    }
    return count;
}

// Room for `count` more entries of a segment that are settled, or left to the retry: each once. false: the
// job is stopped.
static bool settle(struct coord *c, struct coord_segment *s, uint64_t count, uint64_t now_ns)
{
    uint64_t most = s->closed ? s->entries : SEGMENT_ENTRIES_MAX;
    if (count <= most - s->recorded - s->left)
        return true;
    coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns,
                     "it settled more entries of segment %llu than there are: one of them twice",
                     (unsigned long long)s->number);
    return false;
}

// From the source: of files that were to be tried again, and could not be listed.
static bool settle_retries(struct coord *c, uint64_t count, uint64_t now_ns)
{
    if (c->phase == PHASE_RETRY && count <= c->retries) {
        c->retries -= count;
        return true;
    }
    coord_stop_words(c, ERR_PROTOCOL, COORD_SOURCE, now_ns, "it settled entries that were not left to it");
    return false;
}

void count_on_entries_done(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct blob *records = &message->entries_done.records;
    int64_t count = count_records(records, node == COORD_DEST);
    if (count < 0) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a receipt record that cannot be read");
        return;
    }
    if (count == 0)
        return;
    if (node == COORD_SOURCE) {
        if (!settle_retries(c, (uint64_t)count, now_ns))
            return;
    } else {
        struct coord_segment *s = pool_segment(c, node, message->entries_done.segment, now_ns);
        if (s == NULL || !settle(c, s, (uint64_t)count, now_ns))
            return;
        s->recorded += (uint32_t)count;
    }
    struct wire_reader r;
    wire_reader_init(&r, records->bytes, records->len);
    for (int64_t i = 0; i < count; i++) {
        size_t len;
        const uint8_t *bytes = wire_get_blob(&r, records->len, &len);
        struct receipt_entry e;
        int rc = receipt_entry_decode(bytes, len, &e);
        assert(rc == 0); // as above
        count_outcome(c, e.outcome);
        c->counters.files_moved += e.type == ENTRY_FILE && e.outcome == RECEIPT_MOVED;
    }
    c->sink.records(c->sink.arg, records);
}

// The words of a PROBLEM are those of an error value without its node.
static void problem_to_err(const struct msg_problem *m, struct err *err)
{
    struct msg_fail fail = {.class = m->class, .os = m->os, .op = m->op, .path = m->path, .text = m->text};
    message_to_err(&fail, err);
}

// Left to the retry: once, and in the hands of the source.
static void on_retry(struct coord *c, const struct message *message, uint64_t now_ns)
{
    struct coord_segment *s = pool_segment(c, COORD_DEST, message->problem.segment, now_ns);
    if (s == NULL || !settle(c, s, 1, now_ns))
        return;
    if (c->phase != PHASE_RUN) {
        coord_stop_words(c, ERR_PROTOCOL, COORD_DEST, now_ns, "an entry is to be tried a third time");
        return;
    }
    s->left++;
    c->retries++;
    coord_send(c, COORD_SOURCE, message);
}

void count_on_problem(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_problem *m = &message->problem;
    if (m->count == PROBLEM_RETRY && node == COORD_DEST) {
        on_retry(c, message, now_ns);
        return;
    }
    if (m->count != PROBLEM_RECORDED && (m->count != PROBLEM_UNLISTED || node != COORD_SOURCE)) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a problem that cannot be counted (%u)", m->count);
        return;
    }
    struct err err;
    problem_to_err(m, &err);
    snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
    c->exit_status = err_exit_worse(c->exit_status, err_class_exit(err.class));
    if (m->count == PROBLEM_UNLISTED) {
        c->counters.total++;
        count_outcome(c, err.class == ERR_VANISHED  ? RECEIPT_VANISHED
                         : err.class == ERR_CHANGED ? RECEIPT_CHANGED
                                                    : RECEIPT_FAILED);
    }
    c->sink.problem(c->sink.arg, &err);
}

// What is kept and what the next run needs, as far as it is known.
static void kept_words(const struct coord *c, uint64_t kept, char *out, size_t len)
{
    const struct coord_counters *n = &c->counters;
    uint64_t needed = n->bytes_needed > n->bytes_moved ? n->bytes_needed - n->bytes_moved : 0;
    const char *least = n->walked && pool_compared(c) ? "" : "at least ";
    char kept_text[WORDS_BYTES], needed_text[WORDS_BYTES];
    words_bytes(kept, kept_text);
    words_bytes(needed, needed_text);
    if (kept > 0 && needed > 0)
        snprintf(out, len, "%s are kept in .penstock for the next run, which needs %s%s more", kept_text,
                 least, needed_text);
    else if (kept > 0)
        snprintf(out, len, "%s are kept in .penstock for the next run", kept_text);
    else if (needed > 0)
        snprintf(out, len, "the next run needs %s%s", least, needed_text);
    else
        out[0] = '\0';
}

void count_stop_words(const struct coord *c, const struct msg_closed *closed, struct err *err)
{
    char kept[2 * WORDS_BYTES + 100], free_text[WORDS_BYTES];
    kept_words(c, closed->kept_bytes, kept, sizeof kept);
    if (err->os == ENOSPC) // with a quota it is not what is free that counts
        snprintf(err->text, sizeof err->text, "%s%s%s are free", kept, kept[0] != '\0' ? "; " : "",
                 words_bytes(closed->free_bytes, free_text));
    else if (kept[0] != '\0' && err->text[0] != '\0')
        snprintf(err->text + strlen(err->text), sizeof err->text - strlen(err->text), "; %s", kept);
    else if (kept[0] != '\0')
        snprintf(err->text, sizeof err->text, "%s", kept);
}
