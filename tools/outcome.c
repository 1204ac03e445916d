#include "tools/outcome.h"

struct outcome_row {
    const char *word, *sentence;
};

static const struct outcome_row rows[] = {
#define X(name, number, word, sentence) [name] = {word, sentence},
    OUTCOMES(X)
#undef X
};

static const struct outcome_row unknown = {"unknown", "ended in an unknown way"};

static const struct outcome_row *find(int exit_status)
{
    return exit_status >= 0 && (size_t)exit_status < ARRAY_LEN(rows) ? &rows[exit_status] : &unknown;
}

const char *outcome_word(int exit_status)
{
    return find(exit_status)->word;
}

const char *outcome_sentence(int exit_status)
{
    return find(exit_status)->sentence;
}
