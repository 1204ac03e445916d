// The coordinator machine: who may say what and when, versions, roles, and where the entries will go.
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tests/unit/coord_kit.h"

// Who may say what, and from which phase to which. What is not here is said by the coordinator alone.
static const struct {
    bool from[COORD_NODES];
    enum kit_phase first, last;
} places[MESSAGE_TYPES] = {
    [MESSAGE_HELLO] = {{true, true}, KIT_HELLO, KIT_HELLO},
    [MESSAGE_FAIL] = {{true, true}, KIT_HELLO, KIT_FINISH},
    [MESSAGE_PING] = {{true, true}, KIT_OPEN_SOURCE, KIT_CLOSE},
    [MESSAGE_PONG] = {{true, true}, KIT_OPEN_SOURCE, KIT_CLOSE},
    [MESSAGE_SOURCE_OPENED] = {{true, false}, KIT_OPEN_SOURCE, KIT_OPEN_SOURCE},
    [MESSAGE_DEST_OPENED] = {{false, true}, KIT_OPEN_DEST, KIT_OPEN_DEST},
    [MESSAGE_LINKED] = {{true, true}, KIT_LINK, KIT_FINISH},
    [MESSAGE_LINK_FAILED] = {{true, true}, KIT_LINK, KIT_FINISH},
    [MESSAGE_STREAM_ENDED] = {{true, true}, KIT_LINK, KIT_CLOSE},
    [MESSAGE_SEGMENT_CLOSED] = {{true, false}, KIT_RUN, KIT_RETRY},
    [MESSAGE_SEGMENT_COMPARED] = {{false, true}, KIT_RUN, KIT_RETRY},
    [MESSAGE_SEGMENT_LAID] = {{true, false}, KIT_RUN, KIT_RETRY},
    // What is said of stripes of files that failed may still be on its way when all entries are settled.
    [MESSAGE_LEASE] = {{false, true}, KIT_RUN, KIT_FINISH},
    [MESSAGE_STRIPES_DONE] = {{false, true}, KIT_RUN, KIT_CLOSE},
    [MESSAGE_STRIPE_BAD] = {{false, true}, KIT_RUN, KIT_FINISH},
    [MESSAGE_ENTRIES_DONE] = {{true, true}, KIT_RUN, KIT_RETRY},
    [MESSAGE_PROBLEM] = {{true, true}, KIT_RUN, KIT_CLOSE},
    [MESSAGE_SEGMENT_DONE] = {{false, true}, KIT_RUN, KIT_RETRY},
    [MESSAGE_FINISHED] = {{false, true}, KIT_FINISH, KIT_FINISH},
    [MESSAGE_NOTICE] = {{true, true}, KIT_OPEN_SOURCE, KIT_CLOSE},
    [MESSAGE_CLOSED] = {{true, true}, KIT_CLOSE, KIT_CLOSE},
    [MESSAGE_STREAM_STATS] = {{true, true}, KIT_LINK, KIT_CLOSE},
};

static bool out_of_place(const struct coord_kit *k)
{
    return k->problems > 0 && k->problem.class == ERR_PROTOCOL &&
           strstr(k->problem.text, "in the wrong place") != NULL;
}

// Every message from every node in every phase. A message out of place ends the job and names who sent it;
// while the job closes it is one that was on its way, and no fault.
static void test_places(void)
{
    for (enum kit_phase phase = KIT_HELLO; phase < KIT_PHASES; phase++) {
        for (unsigned type = 1; type < MESSAGE_TYPES; type++) {
            for (unsigned node = 0; node < COORD_NODES; node++) {
                struct coord_kit k;
                kit_begin_in(&k, phase);
                kit_say(&k, node, &(struct message){.type = (enum message_type)type});
                bool right =
                    places[type].from[node] && phase >= places[type].first && phase <= places[type].last;
                bool refused = out_of_place(&k);
                if (refused != (!right && phase < KIT_CLOSE))
                    fprintf(stderr, "  %s of node %u in phase %u\n", message_name(type), node, phase);
                CU_ASSERT_EQUAL(refused, !right && phase < KIT_CLOSE);
                if (refused) {
                    CU_ASSERT_STRING_EQUAL(k.problem.node, node == COORD_SOURCE ? "there" : "here");
                    kit_expect_stopped(&k, ERR_PROTOCOL);
                }
                if (phase == KIT_CLOSE && type != MESSAGE_PROBLEM) {
                    kit_closed(&k, COORD_SOURCE);
                    kit_closed(&k, COORD_DEST);
                    CU_ASSERT(k.ends == 1 && k.exit_status == 0);
                }
                kit_end(&k);
            }
        }
    }
}

// The opening from the first word to LINK, whoever answers first.
static void open_in_order(unsigned first)
{
    struct coord_kit k;
    kit_begin(&k, NULL);
    for (unsigned n = 0; n < COORD_NODES; n++) {
        const struct msg_hello *m = &kit_expect(&k, n, MESSAGE_HELLO)->hello;
        CU_ASSERT(m->version == WIRE_VERSION && m->required == FEATURES_REQUIRED);
    }
    kit_hello(&k, first);
    kit_expect_none(&k);
    kit_hello(&k, 1 - first);
    const struct msg_open *open = &kit_expect(&k, COORD_SOURCE, MESSAGE_OPEN)->open;
    CU_ASSERT(open->role == OPEN_SOURCE && open->job.bytes[0] == 7 && open->streams == 2);
    CU_ASSERT(open->stripe_bytes == 4 * MIB && open->encrypt == 1);
    CU_ASSERT(open->paths.len == 20 && memcmp(open->paths.bytes, "paths of the sources", 20) == 0);
    CU_ASSERT(open->boot.len == 0 && open->sources.len == 0);
    kit_expect_none(&k);
    CU_ASSERT_STRING_EQUAL(coord_engine(k.c, COORD_SOURCE), "");
    kit_source_opened(&k);
    CU_ASSERT_STRING_EQUAL(coord_engine(k.c, COORD_SOURCE), "threads there");
    open = &kit_expect(&k, COORD_DEST, MESSAGE_OPEN)->open;
    CU_ASSERT(open->role == OPEN_DEST && open->job.bytes[0] == 7);
    CU_ASSERT(open->paths.len == 23 && memcmp(open->paths.bytes, "path of the destination", 23) == 0);
    CU_ASSERT(open->boot.len == 13 && memcmp(open->boot.bytes, "boot of there", 13) == 0);
    CU_ASSERT(open->sources.len == 7 && memcmp(open->sources.bytes, "sources", 7) == 0);
    kit_expect_none(&k);
    CU_ASSERT_STRING_EQUAL(k.root, "");
    kit_dest_opened(&k);
    CU_ASSERT_STRING_EQUAL(k.root, "/the/root");
    CU_ASSERT_STRING_EQUAL(k.place, "root");
    CU_ASSERT_STRING_EQUAL(coord_engine(k.c, COORD_DEST), "threads here");
    CU_ASSERT_PTR_NOT_NULL(strstr(k.notice, "threads there"));
    CU_ASSERT_EQUAL(kit_expect(&k, COORD_SOURCE, MESSAGE_LINK)->link.dial, 1);
    CU_ASSERT_EQUAL(kit_expect(&k, COORD_DEST, MESSAGE_LINK)->link.dial, 0);
    kit_expect_none(&k);
    kit_end(&k);
}

static void test_order(void)
{
    open_in_order(COORD_SOURCE);
    open_in_order(COORD_DEST);
}

static void test_versions(void)
{
    static const struct {
        struct msg_hello hello;
        bool fits;
    } table[] = {
        {{WIRE_VERSION, WIRE_VERSION, FEATURES_HAVE, FEATURES_REQUIRED, {0}, {0}}, true},
        {{WIRE_VERSION + 1, WIRE_VERSION, FEATURES_HAVE, 0, {0}, {0}}, true},
        {{UINT16_MAX, 0, UINT64_MAX, 0, {0}, {0}}, true},
        {{WIRE_VERSION_MIN - 1, 0, FEATURES_HAVE, 0, {0}, {0}}, false},
        {{WIRE_VERSION + 1, WIRE_VERSION + 1, FEATURES_HAVE, 0, {0}, {0}}, false},
        {{WIRE_VERSION, WIRE_VERSION, FEATURES_HAVE & ~FEATURES_REQUIRED, 0, {0}, {0}}, false},
        {{WIRE_VERSION, WIRE_VERSION, FEATURES_HAVE, UINT64_C(1) << 63, {0}, {0}}, false},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (unsigned node = 0; node < COORD_NODES; node++) {
            struct coord_kit k;
            kit_begin(&k, NULL);
            kit_hello(&k, 1 - node);
            kit_read_all(&k);
            struct message m = {.type = MESSAGE_HELLO, .hello = table[i].hello};
            m.hello.software = blob_text("penstock 9");
            kit_say(&k, node, &m);
            if (table[i].fits) {
                kit_expect(&k, COORD_SOURCE, MESSAGE_OPEN);
            } else {
                CU_ASSERT_STRING_EQUAL(k.problem.node, node == COORD_SOURCE ? "there" : "here");
                CU_ASSERT_PTR_NOT_NULL(strstr(k.problem.text, "penstock 9")); // both are named
                CU_ASSERT_PTR_NOT_NULL(strstr(k.problem.text, "penstock test"));
                kit_expect_stopped(&k, ERR_VERSION);
            }
            kit_end(&k);
        }
    }
}

// A refusal of either end, with its exit status; the other end is let go.
static void test_refused(void)
{
    static const struct {
        enum err_class class;
        int exit;
    } table[] = {{ERR_START, 3}, {ERR_AUTH, 3}, {ERR_LOCKED, 9}, {ERR_USAGE, 2}, {ERR_STORAGE, 4}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        for (unsigned node = 0; node < COORD_NODES; node++) {
            struct coord_kit k;
            kit_begin_in(&k, node == COORD_SOURCE ? KIT_OPEN_SOURCE : KIT_OPEN_DEST);
            kit_fail(&k, node, table[i].class);
            CU_ASSERT_STRING_EQUAL(k.problem.node, node == COORD_SOURCE ? "there" : "here");
            kit_expect_stopped(&k, table[i].class);
            kit_closed(&k, COORD_SOURCE);
            CU_ASSERT_EQUAL(k.ends, 0);
            kit_closed(&k, COORD_DEST);
            CU_ASSERT(k.ends == 1 && k.exit_status == table[i].exit);
            kit_end(&k);
        }
    }
}

// The owner may fail the job in the middle of the call that tells it the root: nothing goes on after that.
static void test_root_refused(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_OPEN_DEST);
    k.refuse_root = true;
    kit_dest_opened(&k);
    kit_expect_stopped(&k, ERR_START);
    kit_tick(&k, KIT_S);
    kit_expect_none(&k);
    kit_closed(&k, COORD_SOURCE);
    kit_closed(&k, COORD_DEST);
    CU_ASSERT(k.ends == 1 && k.exit_status == 3);
    kit_end(&k);
}

static void send_nothing(void *arg, unsigned node, const struct message *m)
{
    struct msg_open *seen = arg;
    if (node == COORD_SOURCE && m->type == MESSAGE_OPEN)
        CU_ASSERT(memcmp(m->open.paths.bytes, "paths", 5) == 0 &&
                  memcmp(m->open.host.bytes, "desk", 4) == 0 && memcmp(m->open.user.bytes, "me", 2) == 0);
    if (node == COORD_SOURCE && m->type == MESSAGE_OPEN)
        seen->role = 77;
}

// The configuration may be gone once the machine is made.
static void test_config_copied(void)
{
    char paths[] = "paths", dest[] = "dest", host[] = "desk", user[] = "me", name[] = "n";
    struct msg_open seen = {0};
    struct coord_config cfg = {.streams = 1,
                               .stripe_bytes = MIB,
                               .host = host,
                               .user = user,
                               .software = name,
                               .source_paths = blob_text(paths),
                               .dest_path = blob_text(dest),
                               .names = {name, name},
                               .dial_host = {name, name}};
    struct coord_sink sink = {.arg = &seen, .send = send_nothing};
    struct coord *c = coord_new(&cfg, &sink);
    CU_ASSERT_PTR_NOT_NULL_FATAL(c);
    memset(paths, 'x', 5);
    memset(dest, 'x', 4);
    memset(host, 'x', 4);
    memset(user, 'x', 2);
    memset(name, 'x', 1);
    memset(&cfg, 0xff, sizeof cfg);
    memset(&sink, 0xff, sizeof sink);
    coord_start(c, 1);
    struct message hello = {
        .type = MESSAGE_HELLO,
        .hello = {.version = WIRE_VERSION, .version_min = WIRE_VERSION, .features = FEATURES_HAVE}};
    coord_message(c, COORD_SOURCE, &hello, 1);
    coord_message(c, COORD_DEST, &hello, 1);
    CU_ASSERT_EQUAL(seen.role, 77);
    coord_free(c);
    coord_free(NULL);
}

// Longer than the machine keeps: cut, never overrun.
static void test_long_words(void)
{
    struct coord_kit k;
    char boot[64], engine[161], root[2 * KIB + 1];
    memset(boot, 'b', 63);
    memset(engine, 'e', 160);
    memset(root, 'r', 2 * KIB);
    kit_begin_in(&k, KIT_OPEN_SOURCE);
    kit_say(&k, COORD_SOURCE,
            &(struct message){.type = MESSAGE_SOURCE_OPENED,
                              .source_opened = {.boot = blob_of(boot, 63), .engine = blob_of(engine, 160)}});
    CU_ASSERT_EQUAL(kit_expect(&k, COORD_DEST, MESSAGE_OPEN)->open.boot.len, 63);
    CU_ASSERT_EQUAL(strlen(coord_engine(k.c, COORD_SOURCE)), 159);
    kit_say(
        &k, COORD_DEST,
        &(struct message){.type = MESSAGE_DEST_OPENED,
                          .dest_opened = {.engine = blob_of(engine, 160), .root = blob_of(root, 2 * KIB)}});
    CU_ASSERT_EQUAL(strlen(k.root), 2 * KIB - 1); // as long as the kit keeps it
    kit_expect_running(&k);
    kit_end(&k);
}

// Words of an agent become a line that names it, and nothing else.
static void test_notice(void)
{
    struct coord_kit k;
    kit_begin_in(&k, KIT_RUN);
    kit_say(&k, COORD_SOURCE,
            &(struct message){.type = MESSAGE_NOTICE,
                              .notice = {.op = blob_text("read"),
                                         .path = blob_text("a/\x01"),
                                         .text = blob_text("no answer for 60 s, on /mnt\x0a (nfs)")}});
    CU_ASSERT_STRING_EQUAL(k.notice, "there: read a/\\x01: no answer for 60 s, on /mnt\\x0a (nfs)");
    CU_ASSERT_EQUAL(k.problems, 0);
    kit_expect_none(&k);
    kit_end(&k);
}

void suite_coord_open(void)
{
    CU_pSuite s = CU_add_suite("coord_open", NULL, NULL);
    CU_add_test(s, "places", test_places);
    CU_add_test(s, "order", test_order);
    CU_add_test(s, "versions", test_versions);
    CU_add_test(s, "refused", test_refused);
    CU_add_test(s, "root_refused", test_root_refused);
    CU_add_test(s, "config_copied", test_config_copied);
    CU_add_test(s, "long_words", test_long_words);
    CU_add_test(s, "notice", test_notice);
}
