// The coordinator machine: the last way in which two agents come together, inside ssh.
#include <stdio.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/coord_state.h"
#include "tests/unit/coord_kit.h"

// As kit_source_opened, or kit_dest_opened, with this many addresses of 50 bytes.
static void opened_at(struct coord_kit *k, unsigned node, uint32_t count)
{
    uint8_t list[4 * KIB];
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    for (uint32_t i = 0; i < count; i++) {
        char text[64];
        int len =
            snprintf(text, sizeof text, "[2001:db8:1111:2222:3333:4444:%u555:%04x]:%u", node, i, 40000 + i);
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

// The peer connection is to be made in this way by this node, and awaited by the other one.
static void expect_link(struct coord_kit *k, unsigned dialler, enum link_way way)
{
    const struct msg_link *m = &kit_expect(k, coord_other(dialler), MESSAGE_LINK)->link;
    CU_ASSERT(m->dial == LINK_EXPECT && m->streams == k->streams && m->addresses.len == 0);
    m = &kit_expect(k, dialler, MESSAGE_LINK)->link;
    CU_ASSERT(m->dial == way && m->streams == k->streams && m->session == 0);
    CU_ASSERT_EQUAL(m->addresses.len > 0, way == LINK_DIAL);
    struct job_id acceptor = job_id_at(&k->c->cfg.job, coord_other(dialler));
    CU_ASSERT_EQUAL(memcmp(&m->acceptor, &acceptor, sizeof acceptor), 0);
    kit_expect_none(k);
}

static bool says(const char *text, const char *words)
{
    return strstr(text, words) != NULL;
}

// Inside ssh comes after all direct ways that --dial leaves, and is told.
static void test_order(void)
{
    static const struct {
        struct kit_setup setup;
        unsigned direct[COORD_NODES], count;
    } table[] = {
        {{.dial_host = {"a", "b"}}, {COORD_SOURCE, COORD_DEST}, 2},
        {{.dial_host = {"a", "b"}, .no_dial = {true, false}}, {COORD_DEST}, 1},
        {{.dial_host = {"a", "b"}, .no_dial = {false, true}}, {COORD_SOURCE}, 1},
    };
    for (unsigned local = 0; local < COORD_NODES; local++) {
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
            struct coord_kit k;
            struct kit_setup setup = table[i].setup;
            setup.inside[local] = true;
            begin_link(&k, &setup, 1);
            for (unsigned d = 0; d < table[i].count; d++) {
                expect_link(&k, table[i].direct[d], LINK_DIAL);
                CU_ASSERT_FALSE(says(k.notice, "inside ssh"));
                kit_link_failed(&k, table[i].direct[d], GREET_PEER, 0, 0);
            }
            expect_link(&k, local, LINK_INSIDE);
            CU_ASSERT_TRUE(says(k.notice, "no route") && says(k.notice, "trying inside ssh"));
            kit_peer(&k, local);
            CU_ASSERT_TRUE(says(k.notice, "no direct path between there and here; streams run inside ssh"));
            kit_expect_none(&k);
            kit_peer(&k, coord_other(local));
            kit_expect(&k, COORD_SOURCE, MESSAGE_WALK);
            kit_expect_none(&k);
            kit_expect_running(&k);
            kit_end(&k);
        }
    }
}

// A direct way that stands is the way, whoever could start ssh.
static void test_direct(void)
{
    for (int other_way = 0; other_way < 2; other_way++) {
        struct coord_kit k;
        begin_link(&k, &(struct kit_setup){.inside = {false, true}}, 1);
        expect_link(&k, COORD_SOURCE, LINK_DIAL);
        if (other_way) {
            kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
            expect_link(&k, COORD_DEST, LINK_DIAL);
        }
        kit_peer(&k, other_way ? COORD_DEST : COORD_SOURCE);
        CU_ASSERT_FALSE(says(k.notice, "inside ssh"));
        kit_peer(&k, other_way ? COORD_SOURCE : COORD_DEST);
        kit_expect(&k, COORD_SOURCE, MESSAGE_WALK);
        kit_expect_none(&k);
        kit_end(&k);
    }
}

// Two ends of which none can start ssh to the other: the job does not start, and the addresses are named.
static void test_impossible(void)
{
    struct coord_kit k;
    begin_link(&k, &(struct kit_setup){.dial_host = {"a.example", "b.example"}}, 1);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    CU_ASSERT_TRUE(says(k.problem.text, "no path between there and here"));
    CU_ASSERT_TRUE(
        says(k.problem.text, "there tried b.example:1002, [2001:db8:1111:2222:3333:4444:1555:0000]:40000 "));
    CU_ASSERT_TRUE(
        says(k.problem.text, "here tried a.example:1001, [2001:db8:1111:2222:3333:4444:0555:0000]:40000 "));
    CU_ASSERT_FALSE(says(k.problem.text, "ssh"));
    kit_read_all(&k);
    kit_end(&k);

    begin_link(&k, &(struct kit_setup){.dial_host = {"a", "b"}}, 0);
    kit_read_all(&k);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    kit_read_all(&k);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    kit_expect_stopped(&k, ERR_START);
    kit_end(&k);
}

// More addresses than the words have room for: the first ones are named, the others counted, and what the
// second end tried is not crowded out.
static void test_many_addresses(void)
{
    struct coord_kit k;
    begin_link(&k, &(struct kit_setup){.dial_host = {"a.example", "b.example"}}, ADDRESSES_MAX);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    CU_ASSERT_TRUE(says(k.problem.text, "there tried b.example:1002, [2001:"));
    CU_ASSERT_TRUE(says(k.problem.text, "here tried a.example:1001, [2001:"));
    CU_ASSERT_TRUE(says(k.problem.text, " and 13 more (no route"));
    kit_end(&k);
}

// It fails inside ssh too.
static void test_fails(void)
{
    struct coord_kit k;
    begin_link(&k, &(struct kit_setup){.dial_host = {"a", ""}, .inside = {false, true}}, 1);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    kit_read_all(&k);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0); // which was not to dial
    kit_expect_none(&k);
    kit_expect_running(&k);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    CU_ASSERT_TRUE(says(k.problem.text, "a:1001") && says(k.problem.text, "inside ssh (no route"));
    kit_expect_stopped(&k, ERR_START);
    kit_end(&k);
}

// As kit_begin_in, with no direct path and the destination able to start ssh.
static void begin_inside(struct coord_kit *k)
{
    begin_link(k, &(struct kit_setup){.inside = {false, true}}, 1);
    kit_link_failed(k, COORD_SOURCE, GREET_PEER, 0, 0);
    kit_link_failed(k, COORD_DEST, GREET_PEER, 0, 0);
    kit_read_all(k);
}

static void peers(struct coord_kit *k)
{
    kit_peer(k, COORD_DEST);
    kit_peer(k, COORD_SOURCE);
    kit_read_all(k);
}

static void stream_stands(struct coord_kit *k, uint32_t stream, uint32_t attempt)
{
    kit_linked(k, COORD_DEST, stream, attempt);
    kit_linked(k, COORD_SOURCE, stream, attempt);
    kit_read_all(k);
}

// A lost stream is dialled again by who dialled it, in whatever way that was.
static void test_redial(void)
{
    struct coord_kit k;
    begin_inside(&k);
    peers(&k);
    stream_stands(&k, 0, 0);
    stream_stands(&k, 1, 0);
    kit_ended(&k, COORD_DEST, 1, 0, 5);
    kit_expect(&k, COORD_SOURCE, MESSAGE_STREAM_ENDED);
    kit_tick(&k, REDIAL_FIRST_NS);
    const struct msg_redial *m = &kit_expect(&k, COORD_DEST, MESSAGE_REDIAL)->redial;
    CU_ASSERT(m->stream == 1 && m->attempt == 1);
    kit_expect_none(&k);
    kit_end(&k);
}

// That a stream cannot be dialled, as by one login too many, is told once.
static void test_told_once(void)
{
    struct coord_kit k;
    begin_inside(&k);
    peers(&k);
    stream_stands(&k, 0, 0);
    kit_link_failed(&k, COORD_DEST, GREET_DATA, 1, 0);
    CU_ASSERT_TRUE(says(k.notice, "stream 1 cannot be dialled (no route"));
    uint32_t notices = k.notices;
    for (uint32_t attempt = 1; attempt < 4; attempt++) {
        kit_tick(&k, REDIAL_MAX_NS);
        CU_ASSERT_EQUAL(kit_expect(&k, COORD_DEST, MESSAGE_REDIAL)->redial.attempt, attempt);
        kit_link_failed(&k, COORD_DEST, GREET_DATA, 1, attempt);
    }
    CU_ASSERT_EQUAL(k.notices, notices);
    kit_end(&k);
}

// The path is lost after 30 s without a stream: counted anew for each way that is tried and from the peer
// connection on; inside ssh the first stream may wait for a password, once one stood no other may.
static void test_patience(void)
{
    struct coord_kit k;
    begin_link(&k, &(struct kit_setup){.inside = {false, true}}, 1);
    kit_tick(&k, LOST_NS - 1);
    kit_link_failed(&k, COORD_SOURCE, GREET_PEER, 0, 0);
    CU_ASSERT_EQUAL(kit_tick(&k, LOST_NS - 1), k.now_ns + 1);
    kit_link_failed(&k, COORD_DEST, GREET_PEER, 0, 0);
    CU_ASSERT_EQUAL(kit_tick(&k, LOGIN_NS), k.now_ns + LOST_NS);
    peers(&k);
    CU_ASSERT_EQUAL(kit_tick(&k, LOGIN_NS), k.now_ns + LOST_NS);
    stream_stands(&k, 0, 0);
    kit_tick(&k, 10 * LOST_NS);
    kit_expect_running(&k);
    kit_ended(&k, COORD_DEST, 0, 0, 0);
    kit_tick(&k, LOST_NS - 1);
    kit_expect_running(&k);
    kit_read_all(&k);
    kit_tick(&k, 1);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    kit_end(&k);

    begin_inside(&k);
    peers(&k);
    kit_tick(&k, LOGIN_NS + LOST_NS - 1);
    kit_expect_running(&k);
    kit_tick(&k, 1);
    kit_tick(&k, SUSPECT_NS);
    kit_expect_stopped(&k, ERR_LOST);
    kit_end(&k);
}

void suite_coord_inside(void)
{
    CU_pSuite s = CU_add_suite("coord_inside", NULL, NULL);
    CU_add_test(s, "order", test_order);
    CU_add_test(s, "direct", test_direct);
    CU_add_test(s, "impossible", test_impossible);
    CU_add_test(s, "many_addresses", test_many_addresses);
    CU_add_test(s, "fails", test_fails);
    CU_add_test(s, "redial", test_redial);
    CU_add_test(s, "told_once", test_told_once);
    CU_add_test(s, "patience", test_patience);
}
