// What is printed of a table of options: the text of `--help` and the manual page of `--man`.
#include "tools/options.h"

#include <string.h>

#include "proto/version.h"

enum { HELP_AT = 28, LINE_COLUMNS = 100 };

// "-e, --rsh COMMAND" or "    --json FILE".
static int option_head(const struct option_row *row, char *out, size_t len)
{
    char letter[5] = "    ";
    if (row->letter != '\0')
        snprintf(letter, sizeof(letter), "-%c, ", row->letter);
    return snprintf(out, len, "  %s--%s%s%s", letter, row->name, row->arg != NULL ? " " : "",
                    row->arg != NULL ? row->arg : "");
}

// Prints words from column `at` on, broken before LINE_COLUMNS and indented to HELP_AT.
static void print_words(FILE *to, int at, const char *text)
{
    if (at >= HELP_AT) {
        fprintf(to, "\n");
        at = 0;
    }
    fprintf(to, "%*s", HELP_AT - at, "");
    int column = HELP_AT;
    while (*text != '\0') {
        int len = (int)strcspn(text, " ");
        if (column > HELP_AT && column + 1 + len > LINE_COLUMNS) {
            fprintf(to, "\n%*s", HELP_AT, "");
            column = HELP_AT;
        }
        column += fprintf(to, "%s%.*s", column > HELP_AT ? " " : "", len, text);
        text += len;
        text += strspn(text, " ");
    }
    fprintf(to, "\n");
}

static void print_usage(const struct option_set *set, FILE *to)
{
    fprintf(to, "Usage: penstock %s [options]%s%s\n", set->command, *set->operands != '\0' ? " " : "",
            set->operands);
}

void options_help(const struct option_set *set, FILE *to)
{
    print_usage(set, to);
    fprintf(to, "%s\n\nOptions:\n", set->about);
    for (size_t i = 0; i < set->count; i++) {
        char head[80];
        int len = option_head(&set->rows[i], head, sizeof(head));
        fprintf(to, "%s", head);
        print_words(to, len, set->rows[i].help);
    }
    fprintf(to, "%s", "  -h, --help");
    print_words(to, (int)strlen("  -h, --help"), "show this text (--man: as a manual page)");
    if (*set->notes != '\0')
        fprintf(to, "\n%s", set->notes);
}

// Text for troff: a backslash or dash is spelled out, and no line starts as a request.
static void man_text(FILE *to, const char *text)
{
    bool line_start = true;
    for (; *text != '\0'; text++) {
        if (line_start && (*text == '.' || *text == '\''))
            fprintf(to, "\\&");
        if (*text == '\\')
            fprintf(to, "\\e");
        else if (*text == '-')
            fprintf(to, "\\-");
        else
            fputc(*text, to);
        line_start = *text == '\n';
    }
}

static void man_option(const struct option_row *row, FILE *to)
{
    fprintf(to, ".TP\n");
    if (row->letter != '\0')
        fprintf(to, "\\fB\\-%c\\fR, ", row->letter);
    fprintf(to, "\\fB\\-\\-");
    man_text(to, row->name);
    fprintf(to, "\\fR");
    if (row->arg != NULL) {
        fprintf(to, " \\fI");
        man_text(to, row->arg);
        fprintf(to, "\\fR");
    }
    fprintf(to, "\n");
    man_text(to, row->help);
    fprintf(to, "\n");
}

void options_man(const struct option_set *set, FILE *to)
{
    fprintf(to, ".TH PENSTOCK\\-");
    for (const char *c = set->command; *c != '\0'; c++)
        fputc(*c >= 'a' && *c <= 'z' ? *c - 'a' + 'A' : *c, to);
    fprintf(to, " 1 \"\" \"penstock %s\" \"User Commands\"\n.SH NAME\npenstock\\-%s \\- ", PENSTOCK_VERSION,
            set->command);
    man_text(to, set->about);
    fprintf(to, "\n.SH SYNOPSIS\n\\fBpenstock %s\\fR [options] ", set->command);
    man_text(to, set->operands);
    fprintf(to, "\n.SH OPTIONS\n");
    for (size_t i = 0; i < set->count; i++)
        man_option(&set->rows[i], to);
    if (*set->notes == '\0')
        return;
    fprintf(to, ".SH NOTES\n.nf\n");
    man_text(to, set->notes);
    fprintf(to, ".fi\n");
}
