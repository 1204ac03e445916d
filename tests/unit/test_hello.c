// HELLO: what is said, and with whom there can be a job.
#include "proto/hello.h"

#include <errno.h>
#include <string.h>

#include <CUnit/CUnit.h>

static void test_make(void)
{
    struct message m;
    struct err err = {.class = ERR_NONE};
    hello_make("penstock 9", "node", &m);
    CU_ASSERT(m.type == MESSAGE_HELLO && m.hello.version == WIRE_VERSION);
    CU_ASSERT(m.hello.software.len == 10 && memcmp(m.hello.software.bytes, "penstock 9", 10) == 0);
    CU_ASSERT(m.hello.node.len == 4 && memcmp(m.hello.node.bytes, "node", 4) == 0);
    CU_ASSERT_EQUAL(hello_accept(&m.hello, "penstock 9", &err), 0); // with one's own kind always
    CU_ASSERT_EQUAL(err.class, ERR_NONE);
}

static void test_accept(void)
{
    static const struct {
        uint16_t version, version_min;
        uint64_t features, required;
        const char *words; // of the refusal; NULL: there is none
    } rows[] = {
        {WIRE_VERSION, WIRE_VERSION, FEATURES_HAVE, FEATURES_REQUIRED, NULL},
        {WIRE_VERSION + 7, WIRE_VERSION, FEATURES_HAVE, 0, NULL},
        {WIRE_VERSION, 0, UINT64_MAX, 0, NULL},
        {WIRE_VERSION_MIN - 1, 0, FEATURES_HAVE, 0, "wire version 0 to 0"},
        {WIRE_VERSION + 2, WIRE_VERSION + 1, FEATURES_HAVE, 0, "wire version 2 to 3"},
        {WIRE_VERSION, WIRE_VERSION, 0, 0, "(1, 0)"},
        {WIRE_VERSION, WIRE_VERSION, FEATURES_HAVE, UINT64_C(1) << 63, "(0, 8000000000000000)"},
    };
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        struct msg_hello hello = {.version = rows[i].version,
                                  .version_min = rows[i].version_min,
                                  .features = rows[i].features,
                                  .required = rows[i].required,
                                  .software = blob_text("other\x1b 2")};
        struct err err = {.class = ERR_NONE};
        int rc = hello_accept(&hello, "penstock 9", &err);
        CU_ASSERT_EQUAL(rc, rows[i].words == NULL ? 0 : -EPROTONOSUPPORT);
        if (rc == 0)
            continue;
        CU_ASSERT_EQUAL(err.class, ERR_VERSION);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, rows[i].words));
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "penstock 9"));
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "other\\x1b 2")); // nothing raw of a peer
    }
}

void suite_hello(void)
{
    CU_pSuite suite = CU_add_suite("hello", NULL, NULL);
    CU_add_test(suite, "make", test_make);
    CU_add_test(suite, "accept", test_accept);
}
