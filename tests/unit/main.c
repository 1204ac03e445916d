// Runs the unit tests: one result line per CUnit test, as tests/run reads them.
// Arguments are names of suites; without any, all suites run. The name of the running test goes to the
// standard error output, so that the log of a crash ends with its culprit.
#include <CUnit/CUnit.h>
#include <CUnit/TestDB.h>
#include <CUnit/TestRun.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "proto/base.h"

// Made by the Makefile: `void suite_<noun>(void);` and `SUITES(X)` for each tests/unit/test_<noun>.c.
#include "suites.h"

struct suite_entry {
    const char *name;
    void (*add)(void);
};

#define ENTRY(noun) {#noun, suite_##noun},
static const struct suite_entry suites[] = {SUITES(ENTRY)};

static bool wanted(const char *name, int argc, char **argv)
{
    for (int i = 1; i < argc; i++)
        if (strcmp(argv[i], name) == 0)
            return true;
    return argc == 1;
}

static double seconds_now(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

// CUnit gives a failure's condition as written in the source: a reason has to fit on one line.
static void print_reason(const char *text)
{
    for (; *text != '\0'; text++)
        putchar(*text == '\n' ? ' ' : *text);
}

static void run_test(CU_pSuite suite, CU_pTest test)
{
    fprintf(stderr, "unit.%s.%s\n", suite->pName, test->pName);
    double start = seconds_now();
    CU_ErrorCode code = CU_run_test(suite, test);
    double seconds = seconds_now() - start;
    CU_pFailureRecord failure = CU_get_failure_list();

    if (code == CUE_SUCCESS && failure == NULL && CU_get_number_of_asserts() > 0) {
        printf("ok unit.%s.%s %.3f\n", suite->pName, test->pName, seconds);
    } else if (failure != NULL) {
        printf("not ok unit.%s.%s %s:%u: ", suite->pName, test->pName,
               failure->strFileName != NULL ? failure->strFileName : "?", failure->uiLineNumber);
        print_reason(failure->strCondition != NULL ? failure->strCondition : "failed");
        printf(" (%u of %u checks failed)\n", CU_get_number_of_failures(), CU_get_number_of_asserts());
    } else {
        printf("not ok unit.%s.%s %s\n", suite->pName, test->pName,
               code == CUE_SUCCESS ? "checks nothing" : CU_get_error_msg());
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    if (CU_initialize_registry() != CUE_SUCCESS)
        return EXIT_FAILURE;
    for (size_t i = 0; i < ARRAY_LEN(suites); i++)
        if (wanted(suites[i].name, argc, argv))
            suites[i].add();
    if (CU_get_error() != CUE_SUCCESS) {
        fprintf(stderr, "registering the suites: %s\n", CU_get_error_msg());
        return EXIT_FAILURE;
    }
    for (CU_pSuite suite = CU_get_registry()->pSuite; suite != NULL; suite = suite->pNext) {
        if (suite->pTest == NULL)
            printf("not ok unit.%s has no test\n", suite->pName);
        for (CU_pTest test = suite->pTest; test != NULL; test = test->pNext)
            run_test(suite, test);
    }
    CU_cleanup_registry();
    return EXIT_SUCCESS;
}
