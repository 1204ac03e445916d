// What agents say to the coordinator machine in its tests.
#include <stdlib.h>

#include <CUnit/CUnit.h>

#include "proto/greet.h"
#include "tests/unit/coord_kit.h"

void kit_hello(struct coord_kit *k, unsigned node)
{
    kit_say(k, node,
            &(struct message){.type = MESSAGE_HELLO,
                              .hello = {.version = WIRE_VERSION,
                                        .version_min = WIRE_VERSION_MIN,
                                        .features = FEATURES_HAVE,
                                        .required = FEATURES_REQUIRED,
                                        .software = blob_text("penstock test"),
                                        .node = blob_text("host")}});
}

void kit_source_opened(struct coord_kit *k)
{
    kit_say(k, COORD_SOURCE,
            &(struct message){.type = MESSAGE_SOURCE_OPENED,
                              .source_opened = {.port = 1001,
                                                .boot = blob_text("boot of there"),
                                                .engine = blob_text("threads there"),
                                                .sources = blob_text("sources")}});
}

void kit_dest_opened(struct coord_kit *k)
{
    kit_say(k, COORD_DEST,
            &(struct message){.type = MESSAGE_DEST_OPENED,
                              .dest_opened = {.port = 1002,
                                              .dev = 11,
                                              .inode = 12,
                                              .boot = blob_text("boot of here"),
                                              .engine = blob_text("threads here"),
                                              .root = blob_text("/the/root"),
                                              .place = blob_text("root"),
                                              .names = blob_text("names")}});
}

void kit_peer(struct coord_kit *k, unsigned node)
{
    kit_say(k, node, &(struct message){.type = MESSAGE_LINKED, .linked = {.kind = GREET_PEER}});
}

void kit_linked(struct coord_kit *k, unsigned node, uint32_t stream, uint32_t attempt)
{
    kit_say(k, node,
            &(struct message){.type = MESSAGE_LINKED,
                              .linked = {.kind = GREET_DATA, .stream = stream, .attempt = attempt}});
}

void kit_link_failed(struct coord_kit *k, unsigned node, uint8_t kind, uint32_t stream, uint32_t attempt)
{
    kit_say(k, node,
            &(struct message){
                .type = MESSAGE_LINK_FAILED,
                .link_failed = {
                    .kind = kind, .stream = stream, .attempt = attempt, .text = blob_text("no route")}});
}

void kit_ended(struct coord_kit *k, unsigned node, uint32_t stream, uint32_t attempt, uint64_t frames)
{
    kit_say(k, node,
            &(struct message){
                .type = MESSAGE_STREAM_ENDED,
                .stream_ended = {
                    .stream = stream, .attempt = attempt, .frames = frames, .text = blob_text("reset")}});
}

static void say_closed_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, bool last, bool retry)
{
    k->unsettled[segment % ARRAY_LEN(k->unsettled)] += entries;
    kit_say(k, COORD_SOURCE,
            &(struct message){.type = MESSAGE_SEGMENT_CLOSED,
                              .segment_closed = {.segment = segment,
                                                 .last = last,
                                                 .retry = retry,
                                                 .entries = entries,
                                                 .files = entries,
                                                 .bytes = entries}});
}

void kit_closed_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, bool last)
{
    say_closed_segment(k, segment, entries, last, false);
}

void kit_retry_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, bool last)
{
    say_closed_segment(k, segment, entries, last, true);
}

void kit_compared(struct coord_kit *k, uint64_t segment, uint64_t stripes, uint64_t bytes)
{
    kit_say(k, COORD_DEST,
            &(struct message){
                .type = MESSAGE_SEGMENT_COMPARED,
                .segment_compared = {
                    .segment = segment, .stripes = stripes, .bytes = bytes, .layout = {{(uint8_t)segment}}}});
}

void kit_laid(struct coord_kit *k, uint64_t segment, uint64_t stripes, uint64_t bytes)
{
    k->stripe_count += stripes;
    kit_say(k, COORD_SOURCE,
            &(struct message){
                .type = MESSAGE_SEGMENT_LAID,
                .segment_laid = {
                    .segment = segment, .stripes = stripes, .bytes = bytes, .layout = {{(uint8_t)segment}}}});
}

void kit_segment(struct coord_kit *k, uint64_t segment, uint32_t entries, uint64_t stripes, bool last)
{
    kit_closed_segment(k, segment, entries, last);
    kit_compared(k, segment, stripes, stripes * 100);
    uint64_t first = k->stripe_count;
    kit_laid(k, segment, stripes, stripes * 100);
    for (unsigned n = 0; n < COORD_NODES; n++) {
        const struct message *m = kit_expect(k, n, MESSAGE_SEGMENT_PLACE);
        CU_ASSERT_EQUAL(m->segment_place.segment, segment);
        CU_ASSERT_EQUAL(m->segment_place.first, first);
    }
}

void kit_answer(struct coord_kit *k, const struct msg_lease *lease)
{
    kit_say(k, COORD_DEST, &(struct message){.type = MESSAGE_LEASE, .lease = *lease});
}

void kit_runs(struct coord_kit *k, bool settled, const struct range *runs, uint32_t count)
{
    uint8_t list[32 * KIB];
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    for (uint32_t i = 0; i < count; i++) {
        wire_put_u64(&w, runs[i].offset);
        wire_put_u64(&w, runs[i].len);
    }
    int64_t len = wire_written(&w);
    CU_ASSERT_FATAL(len >= 0);
    kit_say(k, COORD_DEST,
            &(struct message){.type = MESSAGE_STRIPES_DONE,
                              .stripes_done = {.settled = settled,
                                               .bytes = settled ? 0 : 100,
                                               .runs = blob_of(list, (size_t)len)}});
}

void kit_durable(struct coord_kit *k, uint64_t first, uint64_t count)
{
    kit_runs(k, false, &(struct range){.offset = first, .len = count}, 1);
}

void kit_settled(struct coord_kit *k, uint64_t first, uint64_t count)
{
    kit_runs(k, true, &(struct range){.offset = first, .len = count}, 1);
}

void kit_entries(struct coord_kit *k, uint64_t segment, enum receipt_outcome outcome, uint32_t count)
{
    kit_records(k, COORD_DEST, segment, outcome, count);
}

void kit_records(struct coord_kit *k, unsigned node, uint64_t segment, enum receipt_outcome outcome,
                 uint32_t count)
{
    struct receipt_entry e = {.type = ENTRY_FILE,
                              .outcome = outcome,
                              .proof = PROOF_NONE,
                              .mode = 0644,
                              .path = blob_text("a file")};
    k->unsettled[segment % ARRAY_LEN(k->unsettled)] -= node == COORD_DEST ? count : 0;
    uint8_t one[128], list[96 * KIB];
    struct wire_writer w;
    int64_t len = receipt_entry_encode(&e, one, sizeof one);
    CU_ASSERT_FATAL(len > 0);
    wire_writer_init(&w, list, sizeof list);
    for (uint32_t i = 0; i < count; i++)
        wire_put_blob(&w, one, (size_t)len);
    len = wire_written(&w);
    CU_ASSERT_FATAL(len >= 0);
    kit_say(k, node,
            &(struct message){.type = MESSAGE_ENTRIES_DONE,
                              .entries_done = {.segment = segment, .records = blob_of(list, (size_t)len)}});
}

void kit_problem(struct coord_kit *k, unsigned node, enum problem_count count, enum err_class class)
{
    k->unsettled[0] -= count == PROBLEM_RETRY;
    kit_say(k, node,
            &(struct message){
                .type = MESSAGE_PROBLEM,
                .problem = {.count = (uint8_t)count, .class = (uint8_t) class, .path = blob_text("a file")}});
}

// What an agent tells of the other one.
static bool kit_is_hearsay(enum err_class class)
{
    return err_class_exit(class) == err_class_exit(ERR_LOST);
}

void kit_fail(struct coord_kit *k, unsigned node, enum err_class class)
{
    kit_say(k, node,
            &(struct message){.type = MESSAGE_FAIL,
                              .fail = {.class = (uint8_t) class,
                                       .node = blob_text(kit_is_hearsay(class) ? FAIL_OTHER : ""),
                                       .text = blob_text("it does not work")}});
}

void kit_segment_done(struct coord_kit *k, uint64_t segment)
{
    kit_say(k, COORD_DEST,
            &(struct message){.type = MESSAGE_SEGMENT_DONE, .segment_done = {.segment = segment}});
}

void kit_segment_over(struct coord_kit *k, uint64_t segment)
{
    uint32_t left = k->unsettled[segment % ARRAY_LEN(k->unsettled)];
    if (left > 0)
        kit_entries(k, segment, RECEIPT_MOVED, left);
    kit_segment_done(k, segment);
}

void kit_finished(struct coord_kit *k)
{
    kit_say(k, COORD_DEST, &(struct message){.type = MESSAGE_FINISHED});
}

void kit_closed(struct coord_kit *k, unsigned node)
{
    k->gone[node] = true;
    kit_say(k, node, &(struct message){.type = MESSAGE_CLOSED});
}
