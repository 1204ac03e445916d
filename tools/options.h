// Options, declared once: a command has one table of rows, from which the parser, `--help` and `--man`
// derive. Every command has
// --help (-h) and --man without declaring them.
//
// `--opt=value`, `--opt value`, `-ovalue`, `-o value`, flags in one word (`-46`); `--` ends options; options
// and operands in any order; the last of a repeated option counts. Names are never abbreviated. A value that
// is not entirely what its kind asks for, or out of its range, is refused by the option's name.
#ifndef PENSTOCK_TOOLS_OPTIONS_H
#define PENSTOCK_TOOLS_OPTIONS_H

#include <stdio.h>

#include "proto/base.h"

enum option_kind {
    OPTION_FLAG,   // int: becomes row->value
    OPTION_TEXT,   // const char *: points into argv; not empty
    OPTION_CHOICE, // int: index of the word in row->words
    OPTION_COUNT,  // uint64_t
    OPTION_SIZE,   // uint64_t, bytes: 4M, 1G
    OPTION_RATE,   // uint64_t, bit/s: 500M, 10G
    OPTION_TIME,   // uint64_t, seconds: 90, 90s, 5m, 1h
    OPTION_PORTS,  // struct port_range: LO-HI, or one port
};

struct port_range {
    uint16_t low, high; // 0, 0: not given
};

struct option_row {
    const char *name; // without the dashes
    char letter;      // '\0': none
    enum option_kind kind;
    size_t at;                // where it goes: offsetof(values, member)
    const char *arg;          // what help calls the value; NULL for a flag
    const char *help;         // one sentence
    int value;                // FLAG
    const char *const *words; // CHOICE: up to NULL
    const char *auto_word;    // COUNT: a word that stands for 0; NULL: none
    uint64_t min, max;        // COUNT, SIZE, RATE, TIME; max 0: no limit
};

struct option_set {
    const char *command;  // "copy"
    const char *operands; // "SRC... DST"
    const char *about;    // one line: what the command does
    const char *notes;    // lines that follow the options in help; "" for none
    const struct option_row *rows;
    size_t count;
};

enum options_result { OPTIONS_RUN, OPTIONS_HELP, OPTIONS_MAN, OPTIONS_WRONG };

struct options_found {
    char **operands; // in argv, which is sorted for it
    int count;
    char wrong[512]; // OPTIONS_WRONG: what, without the name of the program
};

// Fills `values` (defaults set by the caller). argv[0] is the command. Pure but for the order of argv.
enum options_result options_parse(const struct option_set *set, int argc, char **argv, void *values,
                                  struct options_found *out);

// What `--help` and `--man` print.
void options_help(const struct option_set *set, FILE *to);
void options_man(const struct option_set *set, FILE *to);

// Parses and answers --help, --man and what is wrong by itself: -1: run the command with *out; else the exit
// status.
MUST_CHECK int options_take(const struct option_set *set, int argc, char **argv, void *values,
                            struct options_found *out);

#endif
