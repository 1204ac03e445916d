// Entries as they are settled, and what goes wrong with them: the counters of the job and its exit status.
#include <stdio.h>

#include "mover/plan/coord_state.h"
#include "proto/receipt.h"

uint64_t count_settled(const struct coord_counters *n)
{
    return n->moved + n->skipped + n->changed + n->vanished + n->failed;
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

void count_on_entries_done(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct blob *records = &message->entries_done.records;
    struct wire_reader r;
    wire_reader_init(&r, records->bytes, records->len);
    while (wire_left(&r) > 0) {
        size_t len;
        const uint8_t *bytes = wire_get_blob(&r, records->len, &len);
        struct receipt_entry e;
        if (bytes == NULL || receipt_entry_decode(bytes, len, &e) < 0) {
            coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a receipt record that cannot be read");
            return;
        }
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

void count_on_problem(struct coord *c, unsigned node, const struct message *message, uint64_t now_ns)
{
    const struct msg_problem *m = &message->problem;
    if (m->count == PROBLEM_RETRY) {
        coord_send(c, COORD_SOURCE, message);
        return;
    }
    if (m->count > PROBLEM_DROPPED) {
        coord_stop_words(c, ERR_PROTOCOL, node, now_ns, "a problem that cannot be counted (%u)", m->count);
        return;
    }
    struct err err;
    problem_to_err(m, &err);
    snprintf(err.node, sizeof err.node, "%s", c->cfg.names[node]);
    c->exit_status = err_exit_worse(c->exit_status, err_class_exit(err.class));
    if (m->count != PROBLEM_RECORDED) {
        c->counters.total += m->count == PROBLEM_UNLISTED;
        count_outcome(c, err.class == ERR_VANISHED  ? RECEIPT_VANISHED
                         : err.class == ERR_CHANGED ? RECEIPT_CHANGED
                                                    : RECEIPT_FAILED);
    }
    c->sink.problem(c->sink.arg, &err);
}
