#include "tools/options.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <string.h>

#include "proto/err.h"
#include "tools/outcome.h"
#include "tools/units.h"

// The options that every command has.
static const struct option_row common_rows[] = {
    {.name = "help", .letter = 'h', .kind = OPTION_FLAG, .value = OPTIONS_HELP},
    {.name = "man", .kind = OPTION_FLAG, .value = OPTIONS_MAN},
};

struct parser {
    const struct option_set *set;
    char **argv;
    int argc, at; // the next argument
    void *values;
    enum options_result result;
    struct options_found *out;
};

// Words of the user go into `wrong` in escaped form: they reach a terminal.
PRINTF_LIKE(2, 3) static bool wrong(struct parser *p, const char *fmt, ...)
{
    char raw[sizeof(p->out->wrong)];
    va_list args;
    va_start(args, fmt);
    vsnprintf(raw, sizeof(raw), fmt, args);
    va_end(args);
    err_escape(p->out->wrong, sizeof(p->out->wrong), raw, strlen(raw));
    p->result = OPTIONS_WRONG;
    return false;
}

static const struct option_row *find_long(const struct option_row *rows, size_t count, const char *name,
                                          size_t len)
{
    for (size_t i = 0; i < count; i++) {
        if (strlen(rows[i].name) == len && memcmp(rows[i].name, name, len) == 0)
            return &rows[i];
    }
    return NULL;
}

static const struct option_row *find_letter(const struct option_row *rows, size_t count, char letter)
{
    for (size_t i = 0; i < count; i++) {
        if (rows[i].letter == letter)
            return &rows[i];
    }
    return NULL;
}

static bool is_common(const struct option_row *row)
{
    return row >= common_rows && row < common_rows + ARRAY_LEN(common_rows);
}

static bool take_flag(struct parser *p, const struct option_row *row)
{
    if (is_common(row)) {
        p->result = (enum options_result)row->value;
        return false;
    }
    memcpy((char *)p->values + row->at, &row->value, sizeof(row->value));
    return true;
}

static bool take_choice(struct parser *p, const struct option_row *row, const char *text)
{
    char all[256] = "";
    size_t len = 0;
    for (int i = 0; row->words[i] != NULL; i++) {
        if (strcmp(text, row->words[i]) == 0) {
            memcpy((char *)p->values + row->at, &i, sizeof(i));
            return true;
        }
        int more = snprintf(all + len, sizeof(all) - len, "%s%s", i > 0 ? ", " : "", row->words[i]);
        assert(more > 0 && len + (size_t)more < sizeof(all));
        len += (size_t)more;
    }
    return wrong(p, "--%s %s: not one of %s", row->name, text, all);
}

struct number_kind {
    int (*parse)(const char *text, uint64_t *out);
    const char *words; // what it must look like
};

static const struct number_kind number_kinds[] = {
    [OPTION_COUNT] = {units_parse_count, "a number"},
    [OPTION_SIZE] = {units_parse_size, "a size (a whole number of bytes, or of K, M, G or T, as in 4M)"},
    [OPTION_RATE] = {units_parse_rate, "a rate (a whole number of bit/s, or of k, M or G, as in 500M)"},
    [OPTION_TIME] = {units_parse_time, "a time (a whole number of seconds, or with s, m or h, as in 5m)"},
};

// A limit as it is typed: 16M.
static const char *limit_text(const struct option_row *row, uint64_t limit, char out[UNITS_TEXT_BYTES])
{
    static const char *const sizes[] = {"", "K", "M", "G", "T"}, *const rates[] = {"", "k", "M", "G"};
    uint64_t step = row->kind == OPTION_SIZE ? 1024 : 1000;
    const char *const *names = row->kind == OPTION_SIZE ? sizes : rates;
    size_t last = row->kind == OPTION_SIZE ? 4 : row->kind == OPTION_RATE ? 3 : 0, i = 0;
    while (i < last && limit > 0 && limit % step == 0) {
        limit /= step;
        i++;
    }
    snprintf(out, UNITS_TEXT_BYTES, "%llu%s", (unsigned long long)limit,
             row->kind == OPTION_TIME ? "s" : names[i]);
    return out;
}

static bool take_number(struct parser *p, const struct option_row *row, const char *text)
{
    const struct number_kind *kind = &number_kinds[row->kind];
    uint64_t value = 0;
    char limit[UNITS_TEXT_BYTES];
    bool automatic = row->auto_word != NULL && strcmp(text, row->auto_word) == 0;
    int rc = automatic ? 0 : kind->parse(text, &value);
    if (rc == -EINVAL)
        return wrong(p, "--%s %s: not %s%s%s", row->name, text, kind->words,
                     row->auto_word != NULL ? " or " : "", row->auto_word != NULL ? row->auto_word : "");
    if (!automatic && (rc < 0 || (row->max > 0 && value > row->max))) {
        if (row->max == 0)
            return wrong(p, "--%s %s: too large", row->name, text);
        return wrong(p, "--%s %s: the most is %s", row->name, text, limit_text(row, row->max, limit));
    }
    if (!automatic && value < row->min)
        return wrong(p, "--%s %s: the least is %s", row->name, text, limit_text(row, row->min, limit));
    memcpy((char *)p->values + row->at, &value, sizeof(value));
    return true;
}

static bool take_ports(struct parser *p, const struct option_row *row, const char *text)
{
    char low_text[8] = "";
    size_t len = strcspn(text, "-");
    const char *high_text = text[len] == '-' ? text + len + 1 : text;
    uint64_t low, high;
    if (len < sizeof(low_text))
        memcpy(low_text, text, len);
    if (units_parse_count(low_text, &low) < 0 || units_parse_count(high_text, &high) < 0 || low == 0 ||
        high > UINT16_MAX)
        return wrong(p, "--%s %s: not a range of ports as 50000-50063", row->name, text);
    if (low > high)
        return wrong(p, "--%s %s: the lower port comes first", row->name, text);
    struct port_range range = {.low = (uint16_t)low, .high = (uint16_t)high};
    memcpy((char *)p->values + row->at, &range, sizeof(range));
    return true;
}

static bool take_value(struct parser *p, const struct option_row *row, const char *text)
{
    assert(row->kind != OPTION_FLAG);
    if (row->kind == OPTION_CHOICE)
        return take_choice(p, row, text);
    if (row->kind == OPTION_PORTS)
        return take_ports(p, row, text);
    if (row->kind != OPTION_TEXT)
        return take_number(p, row, text);
    if (*text == '\0')
        return wrong(p, "--%s: the value is empty", row->name);
    memcpy((char *)p->values + row->at, &text, sizeof(text));
    return true;
}

// The value of an option that has none beside it: the next argument.
static bool take_next(struct parser *p, const struct option_row *row)
{
    if (p->at == p->argc)
        return wrong(p, "--%s needs a value (%s)", row->name, row->arg);
    return take_value(p, row, p->argv[p->at++]);
}

static bool parse_long(struct parser *p, const char *word)
{
    size_t len = strcspn(word, "=");
    const struct option_row *row = find_long(p->set->rows, p->set->count, word, len);
    if (row == NULL)
        row = find_long(common_rows, ARRAY_LEN(common_rows), word, len);
    if (row == NULL)
        return wrong(p, "unknown option --%.*s", (int)u64_min(len, 100), word);
    if (word[len] == '=' && row->kind == OPTION_FLAG)
        return wrong(p, "--%s takes no value", row->name);
    if (word[len] == '=')
        return take_value(p, row, word + len + 1);
    return row->kind == OPTION_FLAG ? take_flag(p, row) : take_next(p, row);
}

// Letters of flags, the last of which may have a value.
static bool parse_letters(struct parser *p, const char *letters)
{
    bool go_on = true;
    for (const char *at = letters; go_on && *at != '\0'; at++) {
        const struct option_row *row = find_letter(p->set->rows, p->set->count, *at);
        if (row == NULL)
            row = find_letter(common_rows, ARRAY_LEN(common_rows), *at);
        if (row == NULL)
            return wrong(p, "unknown option -%.1s in -%.100s", at, letters);
        if (row->kind != OPTION_FLAG)
            return at[1] != '\0' ? take_value(p, row, at + 1) : take_next(p, row);
        go_on = take_flag(p, row);
    }
    return go_on;
}

enum options_result options_parse(const struct option_set *set, int argc, char **argv, void *values,
                                  struct options_found *out)
{
    struct parser p = {.set = set, .argv = argv, .argc = argc, .at = 1, .values = values, .out = out};
    bool go_on = true, options_over = false;
    int count = 0;
    out->wrong[0] = '\0';
    p.result = OPTIONS_RUN;
    while (go_on && p.at < argc) {
        char *word = argv[p.at++];
        if (options_over || word[0] != '-' || word[1] == '\0')
            argv[1 + count++] = word; // never in front of one that is still to be read
        else if (strcmp(word, "--") == 0)
            options_over = true;
        else
            go_on = word[1] == '-' ? parse_long(&p, word + 2) : parse_letters(&p, word + 1);
    }
    out->operands = argv + 1;
    out->count = count;
    return p.result;
}

int options_take(const struct option_set *set, int argc, char **argv, void *values, struct options_found *out)
{
    switch (options_parse(set, argc, argv, values, out)) {
    case OPTIONS_RUN:
        return -1;
    case OPTIONS_HELP:
        options_help(set, stdout);
        return OUTCOME_COMPLETE;
    case OPTIONS_MAN:
        options_man(set, stdout);
        return OUTCOME_COMPLETE;
    case OPTIONS_WRONG:
        break;
    }
    fprintf(stderr, "penstock %s: %s\n", set->command, out->wrong);
    return OUTCOME_USAGE;
}
