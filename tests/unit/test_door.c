#include "mover/door.h"

#include <fcntl.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/limits.h"
#include "storage/sys.h"
#include "tests/unit/door_kit.h"

static const uint64_t NS_PER_MS = 1000000;

static void test_control(void)
{
    struct door *d = door_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(d);
    struct guest g = guest_come(d);
    struct arrival a;
    expect_nobody(d);
    uint64_t before = sys_clock_ns();
    guest_preamble(&g, GREET_CONTROL, WIRE_VERSION, 9);
    guest_say(&g, "what follows", 12);
    door_turn(d);
    CU_ASSERT_TRUE_FATAL(door_next(d, &a));
    CU_ASSERT_EQUAL(a.preamble.kind, GREET_CONTROL);
    CU_ASSERT_EQUAL(a.preamble.job.bytes[0], 9);
    CU_ASSERT_FALSE(a.proved);
    CU_ASSERT_EQUAL(fcntl(a.fd, F_GETFL) & O_NONBLOCK, 0);
    CU_ASSERT(a.deadline_ns > before && a.deadline_ns <= before + GREETING_WAIT_MS * NS_PER_MS);
    char rest[32];
    CU_ASSERT_EQUAL(read(a.fd, rest, sizeof(rest)), 12); // not one byte too many was taken
    CU_ASSERT_EQUAL(memcmp(rest, "what follows", 12), 0);
    expect_nobody(d);
    CU_ASSERT_EQUAL(door_refused(d), 0);
    close(a.fd);
    close(g.fd);
    door_free(d);
}

static void test_data_with_proof(void)
{
    static const enum greet_kind kinds[] = {GREET_DATA, GREET_PEER};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct door *d = door_begin(5000);
        struct guest g = guest_come(d);
        struct secret secret = secret_of(1), dialler, acceptor;
        struct arrival a;
        uint8_t proof[PROOF_BYTES];
        char rest[8];
        guest_preamble(&g, kinds[i], WIRE_VERSION, 1);
        guest_ask(&g, 7);
        door_turn(d);
        expect_nobody(d);
        guest_hear_answer(&g);
        CU_ASSERT_EQUAL(greet_proof(&secret, &g.said, true, proof), 0);
        CU_ASSERT(seal_proof_equal(proof, g.answer + NONCE_BYTES)); // the door shows that it knows, too
        guest_prove(&g, 1);
        guest_say(&g, "frame", 5);
        door_turn(d);
        CU_ASSERT_TRUE_FATAL(door_next(d, &a));
        CU_ASSERT_TRUE(a.proved);
        CU_ASSERT_EQUAL(a.preamble.kind, kinds[i]);
        CU_ASSERT_EQUAL(a.ask.session, 3);
        CU_ASSERT_EQUAL(a.ask.stream, 4);
        CU_ASSERT_EQUAL(a.ask.attempt, 5);
        CU_ASSERT_EQUAL(greet_keys(&secret, &g.said, &dialler, &acceptor), 0);
        CU_ASSERT_EQUAL(memcmp(&a.key_in, &dialler, sizeof(dialler)), 0);
        CU_ASSERT_EQUAL(memcmp(&a.key_out, &acceptor, sizeof(acceptor)), 0);
        CU_ASSERT_EQUAL(read(a.fd, rest, sizeof(rest)), 5);
        close(a.fd);
        close(g.fd);
        door_free(d);
    }
}

// The listener has read the preamble already, and hands on the socket with it.
static void test_preamble_beside(void)
{
    struct door *d = door_begin(5000);
    struct preamble p = {.kind = GREET_DATA, .version = WIRE_VERSION, .job = job_of(1)};
    struct guest g = {0};
    struct arrival a;
    int fds[2];
    CU_ASSERT_EQUAL_FATAL(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
    g.fd = fds[0];
    preamble_encode(&p, g.said.preamble);
    guest_ask(&g, 7);
    door_add(d, fds[1], &p);
    door_turn(d);
    guest_hear_answer(&g);
    guest_prove(&g, 1);
    door_turn(d);
    CU_ASSERT_TRUE_FATAL(door_next(d, &a));
    CU_ASSERT_TRUE(a.proved);
    close(a.fd);
    close(g.fd);
    door_free(d);
}

static void expect_refused(struct door *d, struct guest *g)
{
    uint64_t before = door_refused(d);
    door_turn(d);
    CU_ASSERT_EQUAL(door_refused(d), before + 1);
    CU_ASSERT_TRUE(is_refused(g));
    expect_nobody(d);
    close(g->fd);
}

static void test_wrong_secret(void)
{
    struct door *d = door_begin(5000);
    struct guest g = guest_come(d);
    guest_preamble(&g, GREET_DATA, WIRE_VERSION, 1);
    guest_ask(&g, 7);
    door_turn(d);
    guest_hear_answer(&g);
    guest_prove(&g, 2);
    expect_refused(d, &g);
    door_free(d);
}

// Who has listened to a good greeting says the same again.
static void test_replayed(void)
{
    struct door *d = door_begin(5000);
    struct guest first = guest_come(d), second = guest_come(d);
    struct arrival a;
    struct secret secret = secret_of(1);
    uint8_t proof[PROOF_BYTES];
    guest_preamble(&first, GREET_DATA, WIRE_VERSION, 1);
    guest_ask(&first, 7);
    door_turn(d);
    guest_hear_answer(&first);
    CU_ASSERT_EQUAL(greet_proof(&secret, &first.said, false, proof), 0);
    guest_say(&first, proof, sizeof(proof));
    door_turn(d);
    CU_ASSERT_TRUE_FATAL(door_next(d, &a));
    close(a.fd);
    guest_say(&second, first.said.preamble, PREAMBLE_BYTES);
    guest_say(&second, first.said.ask, GREET_ASK_BYTES);
    door_turn(d);
    guest_hear_answer(&second);
    CU_ASSERT_NOT_EQUAL(memcmp(first.said.acceptor_nonce, second.said.acceptor_nonce, NONCE_BYTES), 0);
    guest_say(&second, proof, sizeof(proof));
    expect_refused(d, &second);
    close(first.fd);
    door_free(d);
}

// The door's own proof, shown to it: on the same connection, and as that of a dialler with the nonces
// exchanged.
static void test_reflected(void)
{
    struct door *d = door_begin(5000);
    struct guest g = guest_come(d);
    guest_preamble(&g, GREET_PEER, WIRE_VERSION, 1);
    guest_ask(&g, 7);
    door_turn(d);
    guest_hear_answer(&g);
    guest_say(&g, g.answer + NONCE_BYTES, PROOF_BYTES);
    expect_refused(d, &g);
    door_free(d);
}

// A proof counts for the kind of connection it was made for.
static void test_other_kind(void)
{
    struct door *d = door_begin(5000);
    struct guest g = guest_come(d);
    struct preamble other = {.kind = GREET_PEER, .version = WIRE_VERSION, .job = job_of(1)};
    guest_preamble(&g, GREET_DATA, WIRE_VERSION, 1);
    guest_ask(&g, 7);
    door_turn(d);
    guest_hear_answer(&g);
    preamble_encode(&other, g.said.preamble);
    guest_prove(&g, 1);
    expect_refused(d, &g);
    door_free(d);
}

static void test_other_job(void)
{
    struct door *knows = door_begin(5000), *routes = door_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(routes);
    struct guest g = guest_come(knows);
    struct arrival a;
    guest_preamble(&g, GREET_DATA, WIRE_VERSION, 2);
    expect_refused(knows, &g);
    g = guest_come(routes);
    guest_preamble(&g, GREET_DATA, WIRE_VERSION, 2);
    door_turn(routes);
    CU_ASSERT_TRUE_FATAL(door_next(routes, &a));
    CU_ASSERT_FALSE(a.proved);
    close(a.fd);
    close(g.fd);
    door_free(knows);
    door_free(routes);
}

// Only who routes hears of another version, and can answer it. Where a proof is due nothing arrives without.
static void test_other_version(void)
{
    static const enum greet_kind kinds[] = {GREET_CONTROL, GREET_DATA, GREET_PEER};
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        struct door *knows = door_begin(5000), *routes = door_new();
        CU_ASSERT_PTR_NOT_NULL_FATAL(routes);
        struct guest g = guest_come(knows);
        struct arrival a;
        guest_preamble(&g, kinds[i], 77, 1);
        expect_refused(knows, &g);
        g = guest_come(routes);
        guest_preamble(&g, kinds[i], 77, 1);
        door_turn(routes);
        CU_ASSERT_TRUE_FATAL(door_next(routes, &a));
        CU_ASSERT_EQUAL(a.preamble.version, 77);
        CU_ASSERT_FALSE(a.proved);
        close(a.fd);
        close(g.fd);
        door_free(knows);
        door_free(routes);
    }
}

static void test_bad_ask(void)
{
    struct door *d = door_begin(5000);
    struct guest g = guest_come(d);
    uint8_t ask[GREET_ASK_BYTES];
    guest_preamble(&g, GREET_DATA, WIRE_VERSION, 1);
    memset(ask, 0xff, sizeof(ask)); // stream 4294967295
    guest_say(&g, ask, sizeof(ask));
    expect_refused(d, &g);
    door_free(d);
}

static void test_garbage(void)
{
    static const char http[] = "GET / HTTP/1.1\r\nHost: here.example.org\r\n\r\n";
    static const uint8_t hello[] = {0x16, 0x03, 0x01, 0x02, 0x00, 0x01, 0x00, 0x01, 0xfc, 0x03, 0x03,
                                    1,    2,    3,    4,    5,    6,    7,    8,    9,    10,   11,
                                    12,   13,   14,   15,   16,   1,    2,    3,    4,    5,    6,
                                    7,    8,    9,    10,   11,   12,   13,   14,   15,   16};
    struct door *d = door_begin(5000);
    struct guest g = guest_come(d);
    guest_say(&g, http, sizeof(http) - 1);
    expect_refused(d, &g);
    g = guest_come(d);
    guest_say(&g, hello, sizeof(hello));
    expect_refused(d, &g);
    door_free(d);
}

static void test_mib_of_zeros(void)
{
    static uint8_t zeros[MIB];
    struct door *d = door_begin(5000);
    struct guest g = guest_come(d);
    CU_ASSERT(send(g.fd, zeros, sizeof(zeros), MSG_NOSIGNAL | MSG_DONTWAIT) >= PREAMBLE_BYTES);
    expect_refused(d, &g);
    door_free(d);
}

// Ends at each byte of the greeting.
static void test_cut(void)
{
    struct door *d = door_begin(5000);
    for (size_t cut = 0; cut < PREAMBLE_BYTES + GREET_ASK_BYTES; cut++) {
        struct guest g = guest_come(d);
        struct preamble p = {.kind = GREET_DATA, .version = WIRE_VERSION, .job = job_of(1)};
        uint8_t words[PREAMBLE_BYTES + GREET_ASK_BYTES] = {0};
        preamble_encode(&p, words);
        guest_say(&g, words, cut);
        CU_ASSERT_EQUAL(shutdown(g.fd, SHUT_WR), 0);
        expect_refused(d, &g);
    }
    door_free(d);
}

void suite_door(void)
{
    CU_pSuite suite = CU_add_suite("door", NULL, NULL);
    CU_add_test(suite, "control", test_control);
    CU_add_test(suite, "data_with_proof", test_data_with_proof);
    CU_add_test(suite, "preamble_beside", test_preamble_beside);
    CU_add_test(suite, "wrong_secret", test_wrong_secret);
    CU_add_test(suite, "replayed", test_replayed);
    CU_add_test(suite, "reflected", test_reflected);
    CU_add_test(suite, "other_kind", test_other_kind);
    CU_add_test(suite, "other_job", test_other_job);
    CU_add_test(suite, "other_version", test_other_version);
    CU_add_test(suite, "bad_ask", test_bad_ask);
    CU_add_test(suite, "garbage", test_garbage);
    CU_add_test(suite, "mib_of_zeros", test_mib_of_zeros);
    CU_add_test(suite, "cut", test_cut);
}
