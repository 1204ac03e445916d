// The two agents of a job: where they are, and how they are reached.
#include "mover/job_inner.h"
#include "mover/reach.h"

#include <errno.h>
#include <string.h>

#include "storage/memory.h"

const struct place *job_place(const struct job *j, unsigned node)
{
    return node == COORD_SOURCE ? &j->places[0] : &j->places[j->cfg.source_count];
}

const char *job_end_name(const struct job *j, unsigned node)
{
    return reach_name(job_place(j, node));
}

static int too_long(const struct place *p, struct err *err)
{
    err_set(err, ERR_USAGE, 0, NULL, p->text, strlen(p->text), "the path has %zu bytes, the most is %d",
            strlen(p->path), PATH_BYTES_MAX);
    return -EINVAL;
}

// A data set that is made is the only source.
static int check_memory(const struct job_config *cfg, struct err *err)
{
    const struct place *to = cfg->destination;
    for (uint32_t i = 0; i < cfg->source_count; i++) {
        const struct place *p = &cfg->sources[i];
        const char *wrong = !p->memory              ? NULL
                            : cfg->source_count > 1 ? "is the only source, or none"
                                                    : memory_wrong(p->memory_files, p->memory_bytes);
        if (wrong == NULL)
            continue;
        err_set(err, ERR_USAGE, 0, NULL, p->text, strlen(p->text), "%s", wrong);
        return -EINVAL;
    }
    if (to->memory && to->memory_files > 0) {
        err_set(err, ERR_USAGE, 0, NULL, to->text, strlen(to->text), "%s",
                "has the size of what comes: only memory:");
        return -EINVAL;
    }
    return 0;
}

int job_check(const struct job_config *cfg, struct err *err)
{
    if (check_memory(cfg, err) < 0)
        return -EINVAL;

    uint64_t bytes = 0;
    for (uint32_t i = 0; i < cfg->source_count; i++) {
        if (strlen(cfg->sources[i].path) > PATH_BYTES_MAX)
            return too_long(&cfg->sources[i], err);
        // The words as they were given go into the receipt, the path, which is no longer, to the agent.
        bytes += sizeof(uint32_t) + strlen(cfg->sources[i].text);
    }
    if (strlen(cfg->destination->path) > PATH_BYTES_MAX)
        return too_long(cfg->destination, err);
    if (cfg->source_count > SOURCES_MAX) {
        err_set(err, ERR_USAGE, 0, NULL, NULL, 0, "%u sources are given, the most is %d", cfg->source_count,
                SOURCES_MAX);
        return -EINVAL;
    }
    if (bytes > SRC_BYTES_MAX) {
        err_set(
            err, ERR_USAGE, 0, NULL, NULL, 0,
            "the names of the sources have %llu bytes together, the most is %d (4 of them for each source); "
            "name a directory above them",
            (unsigned long long)bytes, SRC_BYTES_MAX);
        return -EINVAL;
    }
    return reach_check_rsh(cfg->rsh, err);
}

static bool both_local(const struct job *j)
{
    return job_place(j, COORD_SOURCE)->kind == PLACE_LOCAL && job_place(j, COORD_DEST)->kind == PLACE_LOCAL;
}

const struct place *job_inside(const struct job *j, unsigned node)
{
    const struct place *other = job_place(j, node == COORD_SOURCE ? COORD_DEST : COORD_SOURCE);
    return job_place(j, node)->kind == PLACE_LOCAL && other->kind == PLACE_SSH ? other : NULL;
}

int job_reach(struct job *j, unsigned node, struct err *err)
{
    struct reach_config cfg = {.keys = j->cfg.keys,
                               .family = j->cfg.family,
                               .bind_to = j->cfg.bind_to,
                               .rsh = j->cfg.rsh,
                               .remote_path = j->cfg.remote_path,
                               .port = j->cfg.port,
                               .port_hi = j->cfg.port_hi,
                               .loopback = both_local(j),
                               .inside = job_inside(j, node)};
    struct job_id id = job_id_at(&j->id, node);
    struct job_end *end = &j->ends[node];
    return reach_agent(&cfg, job_place(j, node), &id, j->bell_fd, &end->channel, &end->child, err);
}

void job_leave(struct job *j, unsigned node)
{
    struct job_end *end = &j->ends[node];
    reach_leave(end->channel, &end->child);
    end->channel = NULL;
}
