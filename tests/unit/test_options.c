#include "tools/options.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <CUnit/CUnit.h>

#include "tools/units.h"

struct values {
    int flag, family, choice;
    const char *text;
    uint64_t count, size, rate, time;
    struct port_range ports;
};

static const char *const words[] = {"auto", "on", "off", NULL};

#define AT(member) .at = offsetof(struct values, member)
static const struct option_row rows[] = {
    {.name = "flag", .letter = 'f', .kind = OPTION_FLAG, AT(flag), .value = 1, .help = "a flag"},
    {.name = "ipv4", .letter = '4', .kind = OPTION_FLAG, AT(family), .value = 4, .help = "four"},
    {.name = "ipv6", .letter = '6', .kind = OPTION_FLAG, AT(family), .value = 6, .help = "six"},
    {.name = "text", .letter = 't', .kind = OPTION_TEXT, AT(text), .arg = "WORD", .help = "a text"},
    {.name = "choice", .kind = OPTION_CHOICE, AT(choice), .arg = "WHEN", .words = words, .help = "a choice"},
    {.name = "count",
     .letter = 'n',
     .kind = OPTION_COUNT,
     AT(count),
     .arg = "N",
     .auto_word = "auto",
     .min = 1,
     .max = 1024,
     .help = "a number"},
    {.name = "size",
     .kind = OPTION_SIZE,
     AT(size),
     .arg = "SIZE",
     .min = 1 << 20,
     .max = 16 << 20,
     .help = "a size"},
    {.name = "rate", .kind = OPTION_RATE, AT(rate), .arg = "BITS", .min = 1, .help = "a rate"},
    {.name = "time", .kind = OPTION_TIME, AT(time), .arg = "TIME", .min = 1, .max = 86400, .help = "a time"},
    {.name = "ports", .kind = OPTION_PORTS, AT(ports), .arg = "LO-HI", .help = "a range of ports"},
};
#undef AT

static const struct option_set set = {
    .command = "try",
    .operands = "A... B",
    .about = "Tries.",
    .notes = "- a note\n.with a dot\n",
    .rows = rows,
    .count = ARRAY_LEN(rows),
};

enum { ARGS_MAX = 16 };

// Parses the words of a line (parted by single spaces; an empty word is "").
struct parsed {
    char line[256];
    char *argv[ARGS_MAX + 1];
    struct values values;
    struct options_found found;
    enum options_result result;
};

static void parse(struct parsed *p, const char *line)
{
    int argc = 0;
    memset(p, 0, sizeof(*p));
    p->values.choice = -1;
    snprintf(p->line, sizeof(p->line), "try %s", line);
    for (char *at = p->line; at != NULL && argc < ARGS_MAX; argc++)
        p->argv[argc] = strsep(&at, " ");
    p->result = options_parse(&set, argc, p->argv, &p->values, &p->found);
}

static void check_u64(const char *option, const char *value, size_t at, uint64_t expected)
{
    for (int beside = 0; beside < 2; beside++) {
        struct parsed p;
        char line[128];
        uint64_t got;
        snprintf(line, sizeof(line), "--%s%s%s", option, beside ? "=" : " ", value);
        parse(&p, line);
        memcpy(&got, (const char *)&p.values + at, sizeof(got));
        CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
        CU_ASSERT_EQUAL(got, expected);
        CU_ASSERT_EQUAL(p.found.count, 0);
    }
}

static void test_numbers(void)
{
    check_u64("count", "1", offsetof(struct values, count), 1);
    check_u64("count", "1024", offsetof(struct values, count), 1024);
    check_u64("count", "007", offsetof(struct values, count), 7);
    check_u64("count", "auto", offsetof(struct values, count), 0);
    check_u64("size", "1048576", offsetof(struct values, size), 1 << 20);
    check_u64("size", "1024K", offsetof(struct values, size), 1 << 20);
    check_u64("size", "4M", offsetof(struct values, size), 4 << 20);
    check_u64("size", "4m", offsetof(struct values, size), 4 << 20);
    check_u64("size", "16MiB", offsetof(struct values, size), 16 << 20);
    check_u64("rate", "1", offsetof(struct values, rate), 1);
    check_u64("rate", "500M", offsetof(struct values, rate), 500000000);
    check_u64("rate", "10G", offsetof(struct values, rate), 10000000000);
    check_u64("rate", "8k", offsetof(struct values, rate), 8000);
    check_u64("rate", "10Gbit/s", offsetof(struct values, rate), 10000000000);
    check_u64("rate", "64bit/s", offsetof(struct values, rate), 64);
    check_u64("rate", "18446744073709551615", offsetof(struct values, rate), UINT64_MAX);
    check_u64("time", "90", offsetof(struct values, time), 90);
    check_u64("time", "90s", offsetof(struct values, time), 90);
    check_u64("time", "5m", offsetof(struct values, time), 300);
    check_u64("time", "24h", offsetof(struct values, time), 86400);
}

static void test_units_range(void)
{
    uint64_t n = 77;
    CU_ASSERT_EQUAL(units_parse_size("2T", &n), 0);
    CU_ASSERT_EQUAL(n, UINT64_C(2) << 40);
    CU_ASSERT_EQUAL(units_parse_size("16777215T", &n), 0);
    CU_ASSERT_EQUAL(n, UINT64_C(16777215) << 40);
    CU_ASSERT_EQUAL(units_parse_size("16777216T", &n), -ERANGE);
    CU_ASSERT_EQUAL(units_parse_count("18446744073709551616", &n), -ERANGE);
    CU_ASSERT_EQUAL(units_parse_count("99999999999999999999", &n), -ERANGE);
    CU_ASSERT_EQUAL(units_parse_rate("18446744074G", &n), -ERANGE);
    CU_ASSERT_EQUAL(units_parse_time("5124095576030432h", &n), -ERANGE);
    CU_ASSERT_EQUAL(units_parse_count("", &n), -EINVAL);
    CU_ASSERT_EQUAL(n, UINT64_C(16777215) << 40); // untouched by all that failed
}

// Each is refused, by the name of the option and with the words after it.
static const struct {
    const char *line, *wrong;
} refused[] = {
    {"--count 0", "--count 0: the least is 1"},
    {"--count=0", "--count 0: the least is 1"},
    {"--count 1025", "--count 1025: the most is 1024"},
    {"--count 18446744073709551617", "--count 18446744073709551617: the most is 1024"},
    {"--count -1", "--count -1: not a number or auto"},
    {"--count +1", "--count +1: not a number or auto"},
    {"--count 1e3", "--count 1e3: not a number or auto"},
    {"--count 1.5", "--count 1.5: not a number or auto"},
    {"--count 0x10", "--count 0x10: not a number or auto"},
    {"--count 5K", "--count 5K: not a number or auto"},
    {"--count ", "--count : not a number or auto"},
    {"--count", "--count needs a value (N)"},
    {"-n", "--count needs a value (N)"},
    {"-n0", "--count 0: the least is 1"},
    {"--size 0", "--size 0: the least is 1M"},
    {"--size 1023K", "--size 1023K: the least is 1M"},
    {"--size 17M", "--size 17M: the most is 16M"},
    {"--size 99999999999999999999999", "the most is 16M"},
    {"--size 4MB", "--size 4MB: not a size"},
    {"--size 4Mx", "--size 4Mx: not a size"},
    {"--size 4M8", "--size 4M8: not a size"},
    {"--size M", "--size M: not a size"},
    {"--rate 0", "--rate 0: the least is 1"},
    {"--rate 1e3", "--rate 1e3: not a rate"},
    {"--rate 10T", "--rate 10T: not a rate"},
    {"--rate 18446744073709551616", "--rate 18446744073709551616: too large"},
    {"--rate 10Gbyte", "--rate 10Gbyte: not a rate"},
    {"--time 0", "--time 0: the least is 1s"},
    {"--time 25h", "--time 25h: the most is 86400s"},
    {"--time 5d", "--time 5d: not a time"},
    {"--choice never", "--choice never: not one of auto, on, off"},
    {"--choice ON", "--choice ON: not one of"},
    {"--choice", "--choice needs a value (WHEN)"},
    {"--ports 7000-6999", "--ports 7000-6999: the lower port comes first"},
    {"--ports 0-10", "--ports 0-10: not a range"},
    {"--ports 1-65536", "--ports 1-65536: not a range"},
    {"--ports 1-2-3", "--ports 1-2-3: not a range"},
    {"--ports -5", "--ports -5: not a range"},
    {"--ports 5-", "--ports 5-: not a range"},
    {"--ports 100000000000000000000-5", "not a range"},
    {"--text=", "--text: the value is empty"},
    {"--flag=1", "--flag takes no value"},
    {"--flags", "unknown option --flags"},
    {"--fla", "unknown option --fla"},
    {"--delete", "unknown option --delete"},
    {"--\x1b[2J", "unknown option --\\x1b[2J"},
    {"---", "unknown option ---"},
    {"-x", "unknown option -x"},
    {"-fx", "unknown option -x in -fx"},
    {"a b -x", "unknown option -x"},
};

static void test_refused(void)
{
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct parsed p;
        parse(&p, refused[i].line);
        CU_ASSERT_EQUAL(p.result, OPTIONS_WRONG);
        CU_ASSERT_PTR_NOT_NULL(strstr(p.found.wrong, refused[i].wrong));
        if (strstr(p.found.wrong, refused[i].wrong) == NULL)
            fprintf(stderr, "'%s': says '%s'\n", refused[i].line, p.found.wrong);
    }
}

static void test_forms(void)
{
    struct parsed p;
    parse(&p, "a --text=x=y b -f c");
    CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
    CU_ASSERT_STRING_EQUAL(p.values.text, "x=y");
    CU_ASSERT_EQUAL(p.values.flag, 1);
    CU_ASSERT_EQUAL_FATAL(p.found.count, 3);
    CU_ASSERT_STRING_EQUAL(p.found.operands[0], "a");
    CU_ASSERT_STRING_EQUAL(p.found.operands[1], "b");
    CU_ASSERT_STRING_EQUAL(p.found.operands[2], "c");
    parse(&p, "-46f -tword --choice off");
    CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
    CU_ASSERT_EQUAL(p.values.family, 6); // the last counts
    CU_ASSERT_EQUAL(p.values.flag, 1);
    CU_ASSERT_STRING_EQUAL(p.values.text, "word");
    CU_ASSERT_EQUAL(p.values.choice, 2);
    parse(&p, "-ft word --count 3 --count 4 --text -f");
    CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
    CU_ASSERT_STRING_EQUAL(p.values.text, "-f");
    CU_ASSERT_EQUAL(p.values.count, 4);
}

static void test_end_of_options(void)
{
    struct parsed p;
    parse(&p, "-f -- --text -- -");
    CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
    CU_ASSERT_PTR_NULL(p.values.text);
    CU_ASSERT_EQUAL_FATAL(p.found.count, 3);
    CU_ASSERT_STRING_EQUAL(p.found.operands[0], "--text");
    CU_ASSERT_STRING_EQUAL(p.found.operands[1], "--");
    CU_ASSERT_STRING_EQUAL(p.found.operands[2], "-");
    parse(&p, "- a");
    CU_ASSERT_EQUAL(p.found.count, 2);
}

static void test_ports(void)
{
    struct parsed p;
    parse(&p, "--ports 50000-50063");
    CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
    CU_ASSERT_EQUAL(p.values.ports.low, 50000);
    CU_ASSERT_EQUAL(p.values.ports.high, 50063);
    parse(&p, "--ports 65535-65535");
    CU_ASSERT_EQUAL(p.values.ports.low, 65535);
    CU_ASSERT_EQUAL(p.values.ports.high, 65535);
    parse(&p, "--ports=1");
    CU_ASSERT_EQUAL(p.values.ports.low, 1);
    CU_ASSERT_EQUAL(p.values.ports.high, 1);
}

static void test_help(void)
{
    struct parsed p;
    char *text;
    size_t len;
    parse(&p, "--help --nonsense");
    CU_ASSERT_EQUAL(p.result, OPTIONS_HELP);
    parse(&p, "a -h");
    CU_ASSERT_EQUAL(p.result, OPTIONS_HELP);
    parse(&p, "--man");
    CU_ASSERT_EQUAL(p.result, OPTIONS_MAN);
    parse(&p, "-- --help");
    CU_ASSERT_EQUAL(p.result, OPTIONS_RUN);
    FILE *to = open_memstream(&text, &len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(to);
    options_help(&set, to);
    fclose(to);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "Usage: penstock try [options] A... B\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n  -t, --text WORD           a text\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n      --ports LO-HI         a range of ports\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n- a note\n"));
    free(text);
}

// Every option is in the page, and nothing of ours becomes a request of troff.
static void test_man(void)
{
    char *text;
    size_t len;
    FILE *to = open_memstream(&text, &len);
    CU_ASSERT_PTR_NOT_NULL_FATAL(to);
    options_man(&set, to);
    fclose(to);
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ".TH PENSTOCK\\-TRY 1"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, ".TP\n\\fB\\-t\\fR, \\fB\\-\\-text\\fR \\fIWORD\\fR\na text\n"));
    CU_ASSERT_PTR_NOT_NULL(strstr(text, "\n\\- a note\n\\&.with a dot\n"));
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        CU_ASSERT_PTR_NOT_NULL(strstr(text, rows[i].help));
    free(text);
}

void suite_options(void)
{
    CU_pSuite suite = CU_add_suite("options", NULL, NULL);
    CU_add_test(suite, "numbers", test_numbers);
    CU_add_test(suite, "units_range", test_units_range);
    CU_add_test(suite, "refused", test_refused);
    CU_add_test(suite, "forms", test_forms);
    CU_add_test(suite, "end_of_options", test_end_of_options);
    CU_add_test(suite, "ports", test_ports);
    CU_add_test(suite, "help", test_help);
    CU_add_test(suite, "man", test_man);
}
