// The destination agent's machine: stripes that arrive, commit groups, files and segments that are complete.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "mover/plan/dest.h"

enum { STRIPES = 64 };

// A machine with one segment of three entries, of 4, 0 and 1 stripes, of which two are open; stripes 0 to 9
// of it are leased, and it has a few more.
struct kit {
    struct dest_plan *p;
    struct dest_written written[STRIPES];
    uint64_t now_ns;
};

static void kit_begin(struct kit *k)
{
    static const uint64_t stripes[] = {4, 0, 1};
    *k = (struct kit){.p = dest_plan_new(), .now_ns = 5 * GROUP_NS};
    CU_ASSERT_PTR_NOT_NULL_FATAL(k->p);
    CU_ASSERT_EQUAL_FATAL(dest_plan_segment(k->p, 7, ARRAY_LEN(stripes), stripes, 2), 0);
    dest_plan_placed(k->p, 20);
    CU_ASSERT_EQUAL_FATAL(dest_plan_lease(k->p, 1, 7, 0, 10), 0);
}

static void kit_end(struct kit *k)
{
    dest_plan_free(k->p);
}

static bool kit_written(struct kit *k, uint64_t stripe, uint64_t bytes)
{
    k->written[stripe] = (struct dest_written){.segment = 7, .stripe = stripe, .bytes = bytes};
    return dest_plan_written(k->p, &k->written[stripe], k->now_ns);
}

// It arrives and is written, in the open group.
static void kit_put(struct kit *k, uint64_t stripe, uint64_t bytes)
{
    CU_ASSERT_EQUAL(dest_plan_arrive(k->p, 7, stripe), DEST_TAKE);
    CU_ASSERT_TRUE(kit_written(k, stripe, bytes));
}

// So does a stripe with packed files.
static void kit_put_files(struct kit *k, uint64_t stripe, uint32_t files)
{
    k->written[stripe] =
        (struct dest_written){.segment = 7, .stripe = stripe, .bytes = files, .files = files};
    CU_ASSERT_EQUAL(dest_plan_arrive(k->p, 7, stripe), DEST_TAKE);
    CU_ASSERT_TRUE(dest_plan_written(k->p, &k->written[stripe], k->now_ns));
}

// The group that is taken holds these stripes in this order.
static struct dest_written *kit_take(struct kit *k, const uint64_t *stripes, size_t count)
{
    struct dest_written *group = dest_plan_group_take(k->p);
    const struct dest_written *w = group;
    for (size_t i = 0; i < count; i++) {
        CU_ASSERT_PTR_NOT_NULL_FATAL(w);
        CU_ASSERT_EQUAL(w->stripe, stripes[i]);
        w = w->next;
    }
    CU_ASSERT_PTR_NULL(w);
    return group;
}

#define TAKE(k, ...) \
    kit_take(k, (const uint64_t[]){__VA_ARGS__}, sizeof(const uint64_t[]){__VA_ARGS__} / sizeof(uint64_t))

static void test_lease_refused(void)
{
    static const struct {
        uint64_t first;
        uint32_t count;
        int rc;
    } table[] = {
        {0, 10, -EPROTO},
        {9, 1, -EPROTO},
        {3, 2, -EPROTO},
        {9, LEASE_STRIPES_MAX, -EPROTO},
        {10, 0, -EPROTO},
        {10, LEASE_STRIPES_MAX + 1, -EPROTO},
        {10, UINT32_MAX, -EPROTO},
        {UINT64_MAX, 1, -EPROTO},
        {UINT64_MAX - 9, 10, -EPROTO},
        {UINT64_MAX - 10, 10, 0},
        {10, LEASE_STRIPES_MAX, 0},
        {10, 1, 0},
    };
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        struct kit k;
        kit_begin(&k);
        CU_ASSERT_EQUAL(dest_plan_lease(k.p, 2, 7, table[i].first, table[i].count), table[i].rc);
        CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 2), table[i].rc);
        CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 1), 0);
        CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 1), -EPROTO);
        CU_ASSERT_EQUAL(dest_plan_lease(k.p, 3, 7, 0, 10), 0);
        kit_end(&k);
    }
    dest_plan_free(NULL);
}

static void test_segments(void)
{
    struct kit k;
    kit_begin(&k);
    const uint64_t stripes[] = {1};
    CU_ASSERT_EQUAL(dest_plan_segment(k.p, 7, 1, stripes, 1), -EEXIST);
    CU_ASSERT_EQUAL(dest_plan_segment(k.p, 8, 1, stripes, 1), 0);
    CU_ASSERT_EQUAL(dest_plan_segment(k.p, 9, 0, NULL, 0), 0);
    dest_plan_segment_forget(k.p, 6); // never there
    dest_plan_segment_forget(k.p, 8);
    dest_plan_segment_forget(k.p, 8);
    CU_ASSERT_EQUAL(dest_plan_segment(k.p, 8, 1, stripes, 1), 0);
    CU_ASSERT_FALSE(dest_plan_entry_failed(k.p, 7, 0));
    kit_end(&k);
}

// The head of a frame for a stripe in each of its states, and for those that no lease has.
static void test_arrive(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 8, 0), DEST_FOREIGN); // of another segment
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 10), DEST_DROP);   // its lease is done, or it was settled
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 19), DEST_DROP);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 20), DEST_FOREIGN); // never laid out
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, UINT64_MAX), DEST_FOREIGN);
    dest_plan_placed(k.p, 21);
    dest_plan_placed(k.p, 3); // that says nothing of those above
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 20), DEST_DROP);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 9), DEST_TAKE);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 9), DEST_DROP); // it is arriving
    CU_ASSERT_TRUE(kit_written(&k, 9, 1));
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 9), DEST_DROP); // it is written
    struct dest_written *group = TAKE(&k, 9);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 9), DEST_DROP); // it is being committed
    dest_plan_group_durable(k.p, group);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 9), DEST_DROP); // it is durable
    kit_end(&k);
}

static void test_lost(void)
{
    struct kit k;
    kit_begin(&k);
    dest_plan_lost(k.p, 0); // it never came
    dest_plan_lost(k.p, 50);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 0), DEST_TAKE);
    dest_plan_lost(k.p, 0);
    dest_plan_lost(k.p, 0);
    CU_ASSERT_FALSE(kit_written(&k, 0, 1)); // what was lost is not written
    kit_put(&k, 0, 1);
    dest_plan_lost(k.p, 0); // too late
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 0), DEST_DROP);
    kit_end(&k);
}

// Sent again twice, then given up; each stripe is counted for itself.
static void test_damaged(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_FALSE(dest_plan_damaged(k.p, 3)); // it never came
    CU_ASSERT_FALSE(dest_plan_damaged(k.p, 50));
    for (int time = 1; time <= DAMAGED_MAX; time++) {
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 3), DEST_TAKE);
        CU_ASSERT_EQUAL(dest_plan_damaged(k.p, 3), time == DAMAGED_MAX);
        CU_ASSERT_FALSE(dest_plan_damaged(k.p, 3));
    }
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 3), DEST_DROP);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 4), DEST_TAKE);
    CU_ASSERT_FALSE(dest_plan_damaged(k.p, 4));
    for (int time = 0; time < 2 * DAMAGED_MAX; time++) { // what was lost did not come damaged
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 4), DEST_TAKE);
        dest_plan_lost(k.p, 4);
    }
    kit_put(&k, 4, 1);
    kit_end(&k);
}

static void test_written(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_PTR_NULL(dest_plan_group_take(k.p));
    CU_ASSERT_FALSE(kit_written(&k, 5, 1)); // it never came
    CU_ASSERT_FALSE(kit_written(&k, 50, 1));
    kit_put(&k, 5, 1);
    struct dest_written again = {.segment = 7, .stripe = 5};
    CU_ASSERT_FALSE(dest_plan_written(k.p, &again, k.now_ns)); // twice is once
    kit_put(&k, 2, 1);
    kit_put(&k, 9, 1);
    struct dest_written *group = TAKE(&k, 5, 2, 9);
    CU_ASSERT_PTR_NULL(dest_plan_group_take(k.p));
    kit_put(&k, 0, 1); // while the first is being committed
    dest_plan_group_durable(k.p, group);
    struct dest_written *next = TAKE(&k, 0);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 0), DEST_DROP);
    dest_plan_group_durable(k.p, next);
    kit_end(&k);
}

// When a group closes: at once when nothing is in flight, when it is large, when its time is up.
static void test_group_due(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), UINT64_MAX);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 8), DEST_TAKE);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), UINT64_MAX); // nothing is written
    kit_put(&k, 0, 1);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
    k.now_ns += GROUP_NS - 10;
    kit_put(&k, 1, 1); // its time runs from the first stripe
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 10);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns + 10), 0);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns + 10 * GROUP_NS), 0);
    dest_plan_lost(k.p, 8);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0); // nothing is in flight
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 8), DEST_TAKE);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 10);
    struct dest_written *group = TAKE(&k, 0, 1);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns + GROUP_NS), UINT64_MAX);
    kit_put(&k, 2, GROUP_BYTES - 1);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS); // of its own first stripe
    kit_put(&k, 3, 1);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0);
    dest_plan_group_durable(k.p, group);
    (void)TAKE(&k, 2, 3);
    kit_put(&k, 4, 1); // its bytes count anew
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
    kit_end(&k);
}

// When its packed files are many; those of the next group count anew.
static void test_group_files(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 8), DEST_TAKE);
    kit_put_files(&k, 0, GROUP_FILES - 1);
    kit_put(&k, 1, 1); // of a large file
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
    kit_put_files(&k, 2, 1);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0);
    (void)TAKE(&k, 0, 1, 2);
    kit_put_files(&k, 3, GROUP_FILES - 1);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
    kit_end(&k);
}

// A file is complete with its last stripe, in whatever group that is; one that failed never is.
static void test_entry_commit(void)
{
    struct kit k;
    kit_begin(&k);
    for (int i = 0; i < 3; i++)
        CU_ASSERT_FALSE(dest_plan_entry_commit(k.p, 7, 0));
    CU_ASSERT_TRUE(dest_plan_entry_commit(k.p, 7, 2));
    CU_ASSERT_TRUE(dest_plan_entry_commit(k.p, 7, 0));
    kit_end(&k);

    kit_begin(&k);
    CU_ASSERT_FALSE(dest_plan_entry_commit(k.p, 7, 0));
    CU_ASSERT_TRUE(dest_plan_entry_fail(k.p, 7, 0, 0, 4));
    for (int i = 0; i < 3; i++)
        CU_ASSERT_FALSE(dest_plan_entry_commit(k.p, 7, 0));
    CU_ASSERT_TRUE(dest_plan_entry_commit(k.p, 7, 2)); // another one
    kit_end(&k);
}

// The stripes of a file that fails: settled where they are not yet on their way to the disk.
static void test_entry_fail(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_lease(k.p, 2, 7, 10, 5), 0);
    kit_put(&k, 2, 1);
    struct dest_written *group = TAKE(&k, 2);
    kit_put(&k, 3, 1);
    for (uint64_t s = 4; s < 7; s++)
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, s), DEST_TAKE);
    CU_ASSERT_FALSE(dest_plan_entry_failed(k.p, 7, 0));
    CU_ASSERT_TRUE(dest_plan_entry_fail(k.p, 7, 0, 2, 10)); // 2 to 11, in both leases
    CU_ASSERT_TRUE(dest_plan_entry_failed(k.p, 7, 0));
    CU_ASSERT_FALSE(dest_plan_entry_failed(k.p, 7, 2));
    CU_ASSERT_FALSE(dest_plan_entry_fail(k.p, 7, 0, 2, 10)); // once
    CU_ASSERT_FALSE(kit_written(&k, 4, 1));                  // dropped
    dest_plan_lost(k.p, 5);
    CU_ASSERT_FALSE(dest_plan_damaged(k.p, 6));
    for (uint64_t s = 2; s < 12; s++)
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, s), DEST_DROP);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 1), DEST_TAKE); // its neighbours are another file's
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 12), DEST_TAKE);
    dest_plan_group_durable(k.p, group);
    (void)TAKE(&k, 3); // what was written stays in its group, for who owns it
    kit_end(&k);

    kit_begin(&k);
    CU_ASSERT_TRUE(dest_plan_entry_fail(k.p, 7, 2, 0, 0)); // packed: its stripe carries others
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 0), DEST_TAKE);
    CU_ASSERT_TRUE(dest_plan_entry_fail(k.p, 7, 0, 8, UINT64_MAX));
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 9), DEST_DROP);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 7), DEST_TAKE);
    kit_end(&k);
}

// The segment is done once, when the last of its entries is.
static void test_entries_settled(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_FALSE(dest_plan_entries_settled(k.p, 7, 0));
    CU_ASSERT_FALSE(dest_plan_entries_settled(k.p, 7, 1));
    CU_ASSERT_TRUE(dest_plan_entries_settled(k.p, 7, 1));
    CU_ASSERT_FALSE(dest_plan_entries_settled(k.p, 7, 0)); // a packed stripe all of whose files failed
    kit_end(&k);

    kit_begin(&k);
    CU_ASSERT_TRUE(dest_plan_entries_settled(k.p, 7, 2));
    kit_end(&k);

    kit_begin(&k); // one that needs no data is done when it is placed
    CU_ASSERT_EQUAL(dest_plan_segment(k.p, 8, 0, NULL, 0), 0);
    CU_ASSERT_TRUE(dest_plan_entries_settled(k.p, 8, 0));
    CU_ASSERT_FALSE(dest_plan_entries_settled(k.p, 8, 0));
    kit_end(&k);
}

// It may be forgotten when all its entries are settled and no lease of it is open.
static void test_segment_over(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_segment(k.p, 8, 0, NULL, 0), 0);
    CU_ASSERT_TRUE(dest_plan_segment_over(k.p, 8));
    CU_ASSERT_EQUAL(dest_plan_lease(k.p, 2, 7, 10, 5), 0);
    CU_ASSERT_TRUE(dest_plan_segment_over(k.p, 8)); // those leases are another's
    CU_ASSERT_FALSE(dest_plan_segment_over(k.p, 7));
    CU_ASSERT_FALSE(dest_plan_entries_settled(k.p, 7, 1));
    CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 1), 0);
    CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 2), 0);
    CU_ASSERT_FALSE(dest_plan_segment_over(k.p, 7)); // an entry is open
    CU_ASSERT_EQUAL(dest_plan_lease(k.p, 3, 7, 10, 5), 0);
    CU_ASSERT_TRUE(dest_plan_entries_settled(k.p, 7, 1));
    CU_ASSERT_FALSE(dest_plan_segment_over(k.p, 7)); // a lease is
    CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 3), 0);
    CU_ASSERT_TRUE(dest_plan_segment_over(k.p, 7));
    dest_plan_segment_forget(k.p, 7);
    CU_ASSERT_FALSE(dest_plan_segment_over(k.p, 7)); // never twice
    kit_end(&k);
}

// A file that fails may be the last of its segment, which is forgotten then, while stripes of the file still
// arrive, are written, or committed.
static void test_forgotten(void)
{
    struct kit k;
    kit_begin(&k);
    kit_put(&k, 0, 1);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 1), DEST_TAKE);
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 2), DEST_TAKE);
    CU_ASSERT_TRUE(dest_plan_entry_fail(k.p, 7, 0, 0, 4));
    CU_ASSERT_TRUE(dest_plan_entries_settled(k.p, 7, 2));
    CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 1), 0);
    dest_plan_segment_forget(k.p, 7);
    CU_ASSERT_TRUE(dest_plan_entry_failed(k.p, 7, 0)); // nothing of it goes on
    CU_ASSERT_FALSE(dest_plan_entry_fail(k.p, 7, 0, 0, 4));
    CU_ASSERT_FALSE(kit_written(&k, 1, 1));
    dest_plan_lost(k.p, 2);
    struct dest_written *group = TAKE(&k, 0);
    CU_ASSERT_FALSE(dest_plan_entry_commit(k.p, 7, 0));
    dest_plan_group_durable(k.p, group);
    CU_ASSERT_FALSE(dest_plan_entries_settled(k.p, 7, 0));
    kit_end(&k);
}

// A lease that is done takes along what still arrives of it: the file of a packed stripe may have failed and
// its segment be over while the stripe is written. Groups must not wait for it for ever.
static void test_lease_done_arriving(void)
{
    struct kit k;
    kit_begin(&k);
    CU_ASSERT_EQUAL(dest_plan_lease(k.p, 2, 7, 10, 5), 0);
    for (uint64_t s = 8; s < 12; s++)
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, s), DEST_TAKE);
    kit_put(&k, 0, 1);
    CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 1), 0);
    CU_ASSERT_FALSE(kit_written(&k, 8, 1));
    dest_plan_lost(k.p, 9);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
    CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 2), 0);
    CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0);
    dest_plan_group_durable(k.p, TAKE(&k, 0));
    CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 8), DEST_DROP);
    kit_end(&k);
}

// In whatever way a stripe ends its arriving: when nothing arrives any more, the group is due at once.
static void test_idle(void)
{
    for (int way = 0; way < 6; way++) {
        struct kit k;
        kit_begin(&k);
        kit_put(&k, 9, 1);
        CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0);
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 3), DEST_TAKE);
        CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 3), DEST_DROP);
        CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
        dest_plan_lost(k.p, 9); // they did not arrive
        CU_ASSERT_FALSE(dest_plan_damaged(k.p, 8));
        CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
        if (way == 0)
            CU_ASSERT_TRUE(kit_written(&k, 3, 1));
        if (way == 1)
            dest_plan_lost(k.p, 3);
        if (way == 2)
            CU_ASSERT_FALSE(dest_plan_damaged(k.p, 3));
        if (way == 3)
            CU_ASSERT_TRUE(dest_plan_entry_fail(k.p, 7, 0, 0, 4));
        if (way == 4)
            CU_ASSERT_EQUAL(dest_plan_lease_done(k.p, 1), 0);
        if (way == 5) { // one of two is not all
            CU_ASSERT_EQUAL(dest_plan_arrive(k.p, 7, 2), DEST_TAKE);
            dest_plan_lost(k.p, 3);
            dest_plan_lost(k.p, 3);
            CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), GROUP_NS);
            dest_plan_lost(k.p, 2);
        }
        CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0);
        dest_plan_lost(k.p, 3); // once more is nothing
        CU_ASSERT_EQUAL(dest_plan_group_due_ns(k.p, k.now_ns), 0);
        kit_end(&k);
    }
}

void suite_plan_dest(void)
{
    CU_pSuite s = CU_add_suite("plan_dest", NULL, NULL);
    CU_add_test(s, "idle", test_idle);
    CU_add_test(s, "lease_refused", test_lease_refused);
    CU_add_test(s, "segments", test_segments);
    CU_add_test(s, "arrive", test_arrive);
    CU_add_test(s, "lost", test_lost);
    CU_add_test(s, "damaged", test_damaged);
    CU_add_test(s, "written", test_written);
    CU_add_test(s, "group_due", test_group_due);
    CU_add_test(s, "group_files", test_group_files);
    CU_add_test(s, "entry_commit", test_entry_commit);
    CU_add_test(s, "entry_fail", test_entry_fail);
    CU_add_test(s, "entries_settled", test_entries_settled);
    CU_add_test(s, "segment_over", test_segment_over);
    CU_add_test(s, "forgotten", test_forgotten);
    CU_add_test(s, "lease_done_arriving", test_lease_done_arriving);
}
