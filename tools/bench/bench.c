// penstock bench: a copy from memory, to memory or both: what paths, processors and
// disks can do.
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "tools/command.h"
#include "tools/job_command.h"
#include "tools/outcome.h"
#include "tools/units.h"

#define MEMORY_WORD "memory:"

// "", SIZE or SIZExFILES.
static int parse_extent(const char *text, struct place *out)
{
    char size[32];
    size_t len = strcspn(text, "xX");
    if (*text == '\0')
        return 0;
    if (len >= sizeof size)
        return -EINVAL;
    memcpy(size, text, len);
    size[len] = '\0';
    uint64_t files = 1;
    int rc = units_parse_size(size, &out->memory_bytes);
    if (rc == 0 && text[len] != '\0')
        rc = units_parse_count(text + len + 1, &files);
    if (rc == 0 && (files == 0 || files > UINT32_MAX || out->memory_bytes == 0))
        rc = -ERANGE;
    out->memory_files = (uint32_t)files;
    return rc;
}

static int local_memory(const char *text, struct place *out)
{
    *out = (struct place){.kind = PLACE_LOCAL, .path = strdup("."), .text = strdup(text)};
    if (out->path != NULL && out->text != NULL)
        return 0;
    place_free(out);
    return -ENOMEM;
}

static int bench_place(const char *text, struct place *out, struct err *err)
{
    bool here = strncmp(text, MEMORY_WORD, strlen(MEMORY_WORD)) == 0;
    int rc = here ? local_memory(text, out) : place_parse(text, out, err);
    if (rc == -ENOMEM)
        err_set(err, ERR_START, ENOMEM, "", NULL, 0, "%s", "");
    if (rc < 0)
        return rc;
    const char *path = here ? text : out->path;
    if (strncmp(path, MEMORY_WORD, strlen(MEMORY_WORD)) != 0)
        return 0;
    out->memory = true;
    rc = parse_extent(path + strlen(MEMORY_WORD), out);
    if (rc < 0) {
        err_set(err, ERR_USAGE, 0, NULL, text, strlen(text), "is not memory:SIZE or memory:SIZExFILES");
        place_free(out);
    }
    return rc;
}

static const struct job_command bench = {
    .name = "bench",
    .operands = "SRC DST",
    .about = "Measures: a copy whose bytes are made or forgotten at one end or both, by the same way as any "
             "other.",
    .notes = "SRC is memory:SIZE, memory:SIZExFILES (files of that size) or what copy takes; DST is memory: "
             "or what copy takes.\n"
             "Memory of another host is HOST:memory:SIZE or penstock://HOST[:PORT]/memory:SIZE. Files have "
             "more than 1 MiB. On\n"
             "disks they stay (00000000, 00000001, ...), and replace what has such a name. From memory to "
             "memory every block is\n"
             "looked at where it arrives, beside its digest. There is no receipt of such a copy.\n"
             "\n" OUTCOME_HELP,
    .place = bench_place,
};

int cmd_bench(int argc, char **argv)
{
    return job_command_run(&bench, argc, argv);
}
