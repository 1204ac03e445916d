// Segments under way: the table, and who still holds what is out of it.
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include <CUnit/CUnit.h>

#include "mover/work.h"
#include "tests/unit/tree.h"

static void on_free(void *side)
{
    (*(atomic_uint *)side)++;
}

static struct work *work_new(uint64_t number, atomic_uint *frees)
{
    struct work *w = calloc(1, sizeof *w);
    CU_ASSERT_PTR_NOT_NULL_FATAL(w);
    w->number = number;
    w->side = frees;
    w->side_free = on_free;
    return w;
}

static struct worktab *table_new(void)
{
    struct worktab *t = worktab_new();
    CU_ASSERT_PTR_NOT_NULL_FATAL(t);
    return t;
}

static void test_get(void)
{
    atomic_uint frees = 0;
    struct worktab *t = table_new();
    CU_ASSERT_PTR_NULL(worktab_get(t, 0));
    worktab_put(t, NULL);
    struct work *works[3];
    for (uint64_t n = 0; n < 3; n++) {
        works[n] = work_new(n * n, &frees);
        worktab_add(t, works[n]);
    }
    CU_ASSERT_PTR_EQUAL(worktab_get(t, 0), works[0]);
    CU_ASSERT_PTR_EQUAL(worktab_get(t, 4), works[2]);
    CU_ASSERT_PTR_EQUAL(worktab_get(t, 1), works[1]);
    CU_ASSERT_PTR_NULL(worktab_get(t, 2));
    for (uint64_t n = 0; n < 3; n++)
        worktab_put(t, works[n]);
    CU_ASSERT_EQUAL(frees, 0); // the table holds them
    worktab_free(t);
    CU_ASSERT_EQUAL(frees, 3);
    worktab_free(NULL);
}

// Out of the table it is found by nobody, and lives on while somebody holds it.
static void test_drop(void)
{
    atomic_uint frees = 0;
    struct worktab *t = table_new();
    worktab_add(t, work_new(7, &frees));
    worktab_add(t, work_new(8, &frees));
    worktab_drop(t, 9); // never there
    struct work *a = worktab_get(t, 7), *b = worktab_get(t, 7);
    worktab_drop(t, 7);
    worktab_drop(t, 7);
    CU_ASSERT_PTR_NULL(worktab_get(t, 7));
    CU_ASSERT_EQUAL(frees, 0);
    CU_ASSERT_EQUAL(a->number, 7);
    worktab_put(t, a);
    CU_ASSERT_EQUAL(frees, 0);
    worktab_put(t, b);
    CU_ASSERT_EQUAL(frees, 1);
    worktab_drop(t, 8); // held by nobody
    CU_ASSERT_EQUAL(frees, 2);
    worktab_free(t);
    CU_ASSERT_EQUAL(frees, 2);
}

// Everything that belongs to it goes with it.
static void test_free(void)
{
    atomic_uint frees = 0;
    struct entry e = tree_file("a", 3 * MIB);
    struct work *w = work_new(5, &frees);
    w->segment = tree_segment(5, &e, 1);
    w->need = tree_need_all(w->segment);
    w->layout = tree_layout(w->segment, w->need, MIB);
    work_free(w);
    CU_ASSERT_EQUAL(frees, 1);
    work_free(calloc(1, sizeof *w)); // a source has neither need nor layout at first
    work_free(NULL);
    CU_ASSERT_EQUAL(frees, 1);
}

// Its stripes get their numbers once; only those are its own, and before that none is.
static void test_place(void)
{
    static const struct {
        uint64_t first, count;
        bool has;
    } table[] = {
        {100, 3, true},           {100, 0, true},
        {102, 1, true},           {103, 0, true},
        {100, 4, false},          {99, 1, false},
        {99, 4, false},           {103, 1, false},
        {104, 0, false},          {0, 0, false},
        {100, UINT64_MAX, false}, {UINT64_MAX, 1, false},
        {UINT64_MAX, 0, false},   {101, UINT64_MAX - 100, false},
    };
    atomic_uint frees = 0;
    struct entry e = tree_file("a", 3 * MIB);
    struct work *w = work_new(5, &frees);
    w->segment = tree_segment(5, &e, 1);
    w->need = tree_need_all(w->segment);
    w->layout = tree_layout(w->segment, w->need, MIB);
    CU_ASSERT_FALSE(work_has(w, 0, 1));
    CU_ASSERT_EQUAL(work_place(w, UINT64_MAX - 1), -EOVERFLOW);
    CU_ASSERT_FALSE(work_has(w, 0, 1));
    CU_ASSERT_EQUAL(work_place(w, 100), 0);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        CU_ASSERT_EQUAL(work_has(w, table[i].first, table[i].count), table[i].has);
    CU_ASSERT_EQUAL(work_place(w, 100), -EPROTO); // not even with the same
    CU_ASSERT_EQUAL(work_place(w, 200), -EPROTO);
    CU_ASSERT_TRUE(work_has(w, 100, 3));
    work_free(w);
}

enum { HOLDERS = 3, ROUNDS = 300 };

struct shared {
    struct worktab *t;
    atomic_uint live[ROUNDS]; // 1 while the work is there
    atomic_uint round;
};

static void not_live(void *side)
{
    atomic_store((atomic_uint *)side, 0);
}

// Gets what is there now, looks whether it lives, and lets go.
static void *hold(void *arg)
{
    struct shared *s = arg;
    uintptr_t dead = 0;
    for (unsigned round; (round = atomic_load(&s->round)) < ROUNDS;) {
        struct work *a = worktab_get(s->t, round), *b = worktab_get(s->t, round);
        dead += a != NULL && atomic_load(&s->live[a->number]) != 1;
        worktab_put(s->t, a);
        dead += b != NULL && atomic_load(&s->live[b->number]) != 1;
        worktab_put(s->t, b);
    }
    return (void *)dead;
}

static void test_threads(void)
{
    struct shared *s = calloc(1, sizeof *s);
    CU_ASSERT_PTR_NOT_NULL_FATAL(s);
    s->t = table_new();
    pthread_t threads[HOLDERS];
    for (int i = 0; i < HOLDERS; i++)
        CU_ASSERT_EQUAL_FATAL(pthread_create(&threads[i], NULL, hold, s), 0);
    for (unsigned round = 0; round < ROUNDS; round++) {
        struct work *w = work_new(round, &s->live[round]);
        w->side_free = not_live;
        atomic_store(&s->live[round], 1);
        worktab_add(s->t, w);
        atomic_store(&s->round, round);
        worktab_put(s->t, worktab_get(s->t, round));
        worktab_drop(s->t, round);
    }
    atomic_store(&s->round, ROUNDS);
    for (int i = 0; i < HOLDERS; i++) {
        void *dead;
        CU_ASSERT_EQUAL(pthread_join(threads[i], &dead), 0);
        CU_ASSERT_PTR_NULL(dead);
    }
    for (int i = 0; i < ROUNDS; i++)
        CU_ASSERT_EQUAL(atomic_load(&s->live[i]), 0);
    worktab_free(s->t);
    free(s);
}

void suite_work(void)
{
    CU_pSuite s = CU_add_suite("work", NULL, NULL);
    CU_add_test(s, "get", test_get);
    CU_add_test(s, "drop", test_drop);
    CU_add_test(s, "free", test_free);
    CU_add_test(s, "place", test_place);
    CU_add_test(s, "threads", test_threads);
}
