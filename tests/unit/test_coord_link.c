// The coordinator machine: who dials whom; streams that end, are dialled again, or never stand.
#include <stdio.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

// The addresses of a LINK, one a line.
static void lines_of(const struct blob *list, char *out, size_t len)
{
    struct wire_reader r;
    size_t at = 0;
    wire_reader_init(&r, list->bytes, list->len);
    out[0] = '\0';
    while (wire_left(&r) > 0) {
        size_t one_len;
        const uint8_t *one = wire_get_blob(&r, ADDRESS_BYTES_MAX, &one_len);
        CU_ASSERT_PTR_NOT_NULL_FATAL(one);
        at += (size_t)snprintf(out + at, len - at, "%.*s\n", (int)one_len, (const char *)one);
    }
}

// As kit_source_opened, or kit_dest_opened, with so many addresses.
static void opened_at(struct coord_kit *k, unsigned node, uint32_t count)
{
    uint8_t list[4 * KIB];
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    for (uint32_t i = 0; i < count; i++) {
        char text[32];
        int len = snprintf(text, sizeof text, "10.0.%u.%u:7", node, i);
        wire_put_blob(&w, text, (size_t)len);
    }
    struct blob addresses = blob_of(list, (size_t)wire_written(&w));
    struct message m = {.type = MESSAGE_SOURCE_OPENED,
                        .source_opened = {.port = 1001, .addresses = addresses}};
    if (node == COORD_DEST)
        m = (struct message){.type = MESSAGE_DEST_OPENED,
                             .dest_opened = {.port = 1002, .addresses = addresses}};
    kit_say(k, node, &m);
}

static void begin_link(struct coord_kit *k, const struct kit_setup *setup, uint32_t addresses)
{
    kit_begin(k, setup);
    kit_to(k, KIT_OPEN_SOURCE);
    opened_at(k, COORD_SOURCE, addresses);
    opened_at(k, COORD_DEST, addresses);
    kit_expect(k, COORD_DEST, MESSAGE_OPEN);
}

// Who dials, and what: the name that the user knows first, then what the agent says of itself.
static void test_dialler(void)
{
    static const struct {
        struct kit_setup setup;
        unsigned dialler;
        const char *addresses;
    } table[] = {
        {{.streams = 3}, COORD_SOURCE, "10.0.1.0:7\n10.0.1.1:7\n"},
        {{.dial_host = {"a", "b.example"}}, COORD_SOURCE, "b.example:1002\n10.0.1.0:7\n10.0.1.1:7\n"},
        {{.dial_host = {"a", "::1"}}, COORD_SOURCE, "[::1]:1002\n10.0.1.0:7\n10.0.1.1:7\n"},
        // by the port that the user gave, which may be a forwarder's
        {{.dial_host = {"a", "b"}, .dial_port = {8, 9}}, COORD_SOURCE, "b:9\n10.0.1.0:7\n10.0.1.1:7\n"},
        {{.no_dial = {true, false}, .dial_host = {"a", "b"}}, COORD_DEST, "a:1001\n10.0.0.0:7\n10.0.0.1:7\n"},
        {{.no_dial = {false, true}, .dial_host = {"a", "b"}},
         COORD_SOURCE,
         "b:1002\n10.0.1.0:7\n10.0.1.1:7\n"},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        char lines[4 * KIB];
        begin_link(&k, &table[i].setup, 2);
        const struct msg_link *m = &kit_expect(&k, table[i].dialler, MESSAGE_LINK)->link;
        lines_of(&m->addresses, lines, sizeof lines);
        CU_ASSERT_STRING_EQUAL(lines, table[i].addresses);
        CU_ASSERT(m->dial == 1 && m->streams == k.streams && m->session == 0);
        m = &kit_expect(&k, 1 - table[i].dialler, MESSAGE_LINK)->link;
        CU_ASSERT(m->dial == 0 && m->streams == k.streams && m->addresses.len == 0);
        kit_expect_none(&k);
        kit_end(&k);
    }
}

// An agent offers as many addresses as there may be, and the user's name for it comes on top: an agent dials
// no longer list.
static void test_addresses_most(void)
{
    struct coord_kit k;
    char lines[4 * KIB];
    begin_link(&k, &(struct kit_setup){.dial_host = {"a", "b"}}, ADDRESSES_MAX);
    lines_of(&kit_expect(&k, COORD_SOURCE, MESSAGE_LINK)->link.addresses, lines, sizeof lines);
    uint32_t count = 0;
    for (const char *p = lines; *p != '\0'; p++)
        count += *p == '\n';
    CU_ASSERT_EQUAL(count, ADDRESSES_MAX);
    CU_ASSERT_EQUAL(strncmp(lines, "b:1002\n10.0.1.0:7\n", 18), 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(lines, "10.0.1.14:7\n"));
    kit_end(&k);
}

// Addresses of an agent that are no list: they are left out, and the user's name is dialled.
static void test_addresses_damaged(void)
{
    struct coord_kit k;
    char lines[4 * KIB];
    static const uint8_t cut[] = {3, 0, 0, 0, 'a', ':', '1', 200, 0, 0, 0, 'x'};
    kit_begin(&k, &(struct kit_setup){.dial_host = {"a", "b"}});
    kit_to(&k, KIT_OPEN_DEST);
    kit_say(&k, COORD_DEST,
            &(struct message){.type = MESSAGE_DEST_OPENED,
                              .dest_opened = {.port = 5, .addresses = blob_of(cut, sizeof cut)}});
    lines_of(&kit_expect(&k, COORD_SOURCE, MESSAGE_LINK)->link.addresses, lines, sizeof lines);
    CU_ASSERT_STRING_EQUAL(lines, "b:5\na:1\n");
    kit_end(&k);
}

static void test_walk(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_LINK);
    kit_peer(&k, COORD_SOURCE);
    CU_ASSERT_PTR_NOT_NULL(strstr(k.notice, "the source dials"));
    kit_peer(&k, COORD_SOURCE); // once more says nothing new
    kit_expect_none(&k);
    kit_peer(&k, COORD_DEST);
    const struct msg_walk *m = &kit_expect(&k, COORD_SOURCE, MESSAGE_WALK)->walk;
    CU_ASSERT(m->avoid_dev == 11 && m->avoid_inode == 12 && m->names.len == 5);
    CU_ASSERT_EQUAL(memcmp(m->names.bytes, "names", 5), 0);
    kit_peer(&k, COORD_DEST); // the walk is asked for once
    kit_expect_none(&k);
    kit_end(&k);
}

// Streams may stand before the peer connection does at both ends; they do not begin the walk.
static void test_streams_first(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_LINK);
    for (unsigned n = 0; n < COORD_NODES; n++)
        kit_linked(&k, n, 0, 0);
    kit_peer(&k, COORD_SOURCE);
    kit_expect_none(&k);
    kit_end(&k);
}

// The way back is tried once, with what the other end offers; then there is no path.
static void test_other_way(void)
{
    struct coord_kit k;
    char lines[4 * KIB];
    begin_link(&k, &(struct kit_setup){.dial_host = {"a", "b"}}, 1);
    kit_read_all(&k);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0); // it was not to dial
    kit_expect_none(&k);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(k.notice, "no route"));
    const struct msg_link *m = &kit_expect(&k, COORD_DEST, MESSAGE_LINK)->link;
    lines_of(&m->addresses, lines, sizeof lines);
    CU_ASSERT_STRING_EQUAL(lines, "a:1001\n10.0.0.0:7\n");
    CU_ASSERT_EQUAL(m->dial, 1);
    CU_ASSERT_EQUAL(kit_expect(&k, COORD_SOURCE, MESSAGE_LINK)->link.dial, 0);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0); // late words of the first dialler
    kit_expect_none(&k);
    kit_expect_running(&k);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    CU_ASSERT_PTR_NOT_NULL(strstr(k.problem.text, "no route"));
    kit_expect_stopped(&k, ERR_START);
    kit_end(&k);
}

// The ways in their order: each end dials, then each end inside ssh; those that are not open are left out.
static void test_ways(void)
{
    static const struct {
        struct kit_setup setup;
        struct {
            unsigned dialler;
            enum link_way how;
        } ways[4];
        uint32_t count;
    } table[] = {
        {{0}, {{COORD_SOURCE, LINK_DIAL}, {COORD_DEST, LINK_DIAL}}, 2},
        {{.no_dial = {true, false}}, {{COORD_DEST, LINK_DIAL}}, 1},
        {{.no_dial = {false, true}}, {{COORD_SOURCE, LINK_DIAL}}, 1},
        {{.no_dial = {true, true}}, {{0}}, 0},
        {{.inside = {false, true}},
         {{COORD_SOURCE, LINK_DIAL}, {COORD_DEST, LINK_DIAL}, {COORD_DEST, LINK_INSIDE}},
         3},
        {{.no_dial = {true, true}, .inside = {true, false}}, {{COORD_SOURCE, LINK_INSIDE}}, 1},
        {{.no_dial = {false, true}, .inside = {true, true}},
         {{COORD_SOURCE, LINK_DIAL}, {COORD_SOURCE, LINK_INSIDE}, {COORD_DEST, LINK_INSIDE}},
         3},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct coord_kit k;
        begin_link(&k, &table[i].setup, 1);
        for (uint32_t w = 0; w < table[i].count; w++) {
            unsigned dialler = table[i].ways[w].dialler;
            const struct msg_link *m = &kit_expect(&k, dialler, MESSAGE_LINK)->link;
            CU_ASSERT_EQUAL(m->dial, table[i].ways[w].how);
            CU_ASSERT_EQUAL(m->addresses.len == 0, m->dial == LINK_INSIDE);
            CU_ASSERT_EQUAL(m->acceptor.bytes[15], 2 - dialler); // the other end, as job_id_at numbers it
            CU_ASSERT_EQUAL(kit_expect(&k, 1 - dialler, MESSAGE_LINK)->link.dial, LINK_EXPECT);
            kit_expect_none(&k);
            kit_expect_running(&k);
            kit_tick(&k, LOST_NS - 1); // each has its time
            kit_link_failed(&k, dialler, GREET_PEER, 0, 0);
        }
        kit_expect_stopped(&k, ERR_START);
        kit_end(&k);
    }
}

// A peer connection that stood is not dialled again: its loss ends the job, and no word about it begins
// another link.
static void test_peer_failed_later(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    for (const struct message *m; (m = kit_take(&k, COORD_DEST)) != NULL;)
        CU_ASSERT_NOT_EQUAL(m->type, MESSAGE_LINK);
    CU_ASSERT_EQUAL(k.problem.class, ERR_PROTOCOL);
    kit_end(&k);
}

static void test_no_such_stream(void)
{
    static const struct {
        uint32_t session, stream;
        uint8_t kind;
    } table[] = {{0, 2, GREET_DATA}, {0, UINT32_MAX, GREET_DATA}, {1, 0, GREET_DATA},
                 {1, 0, GREET_PEER}, {0, 0, GREET_CONTROL},       {0, 0, 0}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (unsigned n = 0; n < COORD_NODES; n++) {
            struct coord_kit k;
            kit_begin_in(&k, KIT_RUN);
            kit_say(&k, n,
                    &(struct message){.type = MESSAGE_LINKED,
                                      .linked = {.session = table[i].session,
                                                 .kind = table[i].kind,
                                                 .stream = table[i].stream}});
            kit_expect_stopped(&k, ERR_PROTOCOL);
            kit_end(&k);
            kit_begin_in(&k, KIT_RUN);
            kit_say(&k, n,
                    &(struct message){.type = MESSAGE_LINK_FAILED,
                                      .link_failed = {.session = table[i].session,
                                                      .kind = table[i].kind,
                                                      .stream = table[i].stream}});
            kit_expect_stopped(&k, ERR_PROTOCOL);
            kit_end(&k);
        }
    }
    for (size_t i = 0; i < 3; i++) {
        struct coord_kit k;
        kit_begin_in(&k, KIT_RUN);
        kit_say(&k, COORD_DEST,
                &(struct message){.type = MESSAGE_STREAM_ENDED,
                                  .stream_ended = {.session = table[i].session, .stream = table[i].stream}});
        kit_expect_stopped(&k, ERR_PROTOCOL);
        kit_end(&k);
    }
}

void suite_coord_link(void)
{
    CU_pSuite s = CU_add_suite("coord_link", NULL, NULL);
    CU_add_test(s, "dialler", test_dialler);
    CU_add_test(s, "addresses_most", test_addresses_most);
    CU_add_test(s, "addresses_damaged", test_addresses_damaged);
    CU_add_test(s, "walk", test_walk);
    CU_add_test(s, "streams_first", test_streams_first);
    CU_add_test(s, "other_way", test_other_way);
    CU_add_test(s, "ways", test_ways);
    CU_add_test(s, "peer_failed_later", test_peer_failed_later);
    CU_add_test(s, "no_such_stream", test_no_such_stream);
}
