// How a command ended: exit status, its word in reports and its sentence, declared once (DESIGN §11).
#ifndef PENSTOCK_TOOLS_OUTCOME_H
#define PENSTOCK_TOOLS_OUTCOME_H

#include "proto/base.h"

//        name                number  word            sentence
#define OUTCOMES(X)                                                                                   \
    X(OUTCOME_COMPLETE, 0, "complete", "everything moved is verified and the rest was already there") \
    X(OUTCOME_INCOMPLETE, 1, "incomplete", "some entries were not moved, each is listed")             \
    X(OUTCOME_USAGE, 2, "usage", "wrong usage")                                                       \
    X(OUTCOME_NOT_STARTED, 3, "not-started", "could not start (address, key, permission, version)")   \
    X(OUTCOME_STORAGE, 4, "storage", "stopped by the storage of the destination")                     \
    X(OUTCOME_INTERRUPTED, 5, "interrupted", "interrupted")                                           \
    X(OUTCOME_LOST, 6, "lost", "a node or path was lost")                                             \
    X(OUTCOME_WRONG, 7, "wrong", "data was found wrong")                                              \
    X(OUTCOME_SOURCE_CHANGED, 8, "changed", "nothing failed, but source entries changed or vanished") \
    X(OUTCOME_LOCKED, 9, "locked", "the destination is locked by another job")

enum outcome {
#define X(name, number, word, sentence) name = number,
    OUTCOMES(X)
#undef X
};

// The lines of the table as help shows them.
#define OUTCOME_LINE(name, number, word, sentence) "  " #number "  " sentence "\n"
#define OUTCOME_HELP                               "Exit status:\n" OUTCOMES(OUTCOME_LINE)

// "unknown" for a status that is not in the table.
const char *outcome_word(int exit_status);
const char *outcome_sentence(int exit_status);

#endif
