// The interface of a job: its thread, its list of events, its snapshot.
#include "mover/job.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "mover/job_inner.h"
#include "storage/sys.h"

void job_emit(struct job *j, enum job_event_kind kind, const char *text, const struct err *err)
{
    struct queued_event *q = calloc(1, sizeof *q);
    if (q == NULL)
        abort(); // an event that is lost would be a silence that lies
    q->event.kind = kind;
    strncpy(q->event.text, text, sizeof q->event.text - 1);
    if (err != NULL)
        q->event.err = *err;
    pthread_mutex_lock(&j->lock);
    *j->last = q;
    j->last = &q->next;
    pthread_cond_broadcast(&j->changed);
    pthread_mutex_unlock(&j->lock);
}

static int copy_word(struct job *j, unsigned i, const char **word)
{
    if (*word == NULL)
        return 0;
    j->words[i] = strdup(*word);
    *word = j->words[i];
    return *word != NULL ? 0 : -ENOMEM;
}

static int copy_place(const struct place *from, struct place *to)
{
    *to = *from;
    to->path = strdup(from->path);
    to->text = strdup(from->text);
    return to->path != NULL && to->text != NULL ? 0 : -ENOMEM;
}

static int copy_config(struct job *j, const struct job_config *cfg)
{
    j->cfg = *cfg;
    j->places = calloc(cfg->source_count + 1, sizeof *j->places);
    if (j->places == NULL)
        return -ENOMEM;
    int rc = 0;
    for (uint32_t i = 0; i < cfg->source_count && rc == 0; i++)
        rc = copy_place(&cfg->sources[i], &j->places[i]);
    if (rc == 0)
        rc = copy_place(cfg->destination, &j->places[cfg->source_count]);
    j->cfg.sources = j->places;
    j->cfg.destination = &j->places[cfg->source_count];
    if (rc == 0)
        rc = copy_word(j, 0, &j->cfg.bind_to);
    if (rc == 0)
        rc = copy_word(j, 1, &j->cfg.rsh);
    if (rc == 0)
        rc = copy_word(j, 2, &j->cfg.remote_path);
    return rc == 0 ? copy_word(j, 3, &j->cfg.state_dir) : rc;
}

static void job_clear(struct job *j)
{
    for (uint32_t i = 0; j->places != NULL && i <= j->cfg.source_count; i++) {
        free(j->places[i].path);
        free(j->places[i].text);
    }
    free(j->places);
    for (unsigned i = 0; i < ARRAY_LEN(j->words); i++)
        free(j->words[i]);
    while (j->first != NULL) {
        struct queued_event *q = j->first;
        j->first = q->next;
        free(q);
    }
    if (j->bell_fd >= 0)
        close(j->bell_fd);
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->changed);
    free(j);
}

int job_start(const struct job_config *cfg, struct job **out)
{
    struct job *j = calloc(1, sizeof *j);
    if (j == NULL)
        return -ENOMEM;
    j->last = &j->first;
    j->started_ns = sys_clock_ns();
    j->started_s = sys_wall_s();
    pthread_mutex_init(&j->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&j->changed, &attr);
    pthread_condattr_destroy(&attr);
    atomic_init(&j->cancels, 0);
    j->bell_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = j->bell_fd < 0 ? -errno : copy_config(j, cfg);
    if (rc == 0)
        rc = sys_random(j->id.bytes, sizeof j->id.bytes - 1); // the last byte is for job_id_at
    struct digest id;
    memcpy(id.bytes, j->id.bytes, sizeof id.bytes);
    digest_hex(&id, j->id_hex);
    memcpy(j->result.job, j->id_hex, sizeof j->result.job);
    if (rc == 0)
        rc = -pthread_create(&j->thread, NULL, job_main, j);
    if (rc < 0) {
        job_clear(j);
        return rc;
    }
    *out = j;
    return 0;
}

static struct timespec after_ms(int timeout_ms)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    long ns = t.tv_nsec + (long)(timeout_ms % 1000) * 1000000;
    t.tv_sec += timeout_ms / 1000 + ns / 1000000000;
    t.tv_nsec = ns % 1000000000;
    return t;
}

bool job_next(struct job *j, int timeout_ms, struct job_event *out)
{
    struct timespec until = after_ms(timeout_ms > 0 ? timeout_ms : 0);
    pthread_mutex_lock(&j->lock);
    int rc = 0;
    while (j->first == NULL && !j->ended_taken && rc == 0)
        rc = timeout_ms < 0 ? pthread_cond_wait(&j->changed, &j->lock)
                            : pthread_cond_timedwait(&j->changed, &j->lock, &until);
    struct queued_event *q = j->first;
    if (q != NULL) {
        j->first = q->next;
        if (j->first == NULL)
            j->last = &j->first;
        j->ended_taken = q->event.kind == JOB_ENDED;
    }
    pthread_mutex_unlock(&j->lock);
    if (q == NULL)
        return false;
    *out = q->event;
    free(q);
    return true;
}

void job_snapshot(struct job *j, struct job_snapshot *out)
{
    pthread_mutex_lock(&j->lock);
    *out = j->snapshot;
    uint64_t end_ns = j->ended_ns != 0 ? j->ended_ns : sys_clock_ns();
    out->seconds = (double)(end_ns - j->started_ns) / 1e9;
    pthread_mutex_unlock(&j->lock);
}

void job_cancel(struct job *j)
{
    atomic_fetch_add(&j->cancels, 1);
    uint64_t one = 1;
    ssize_t rung = write(j->bell_fd, &one, sizeof one); // fails only when it rings already
    (void)rung;
}

void job_result(struct job *j, struct job_result *out)
{
    pthread_mutex_lock(&j->lock);
    *out = j->result;
    pthread_mutex_unlock(&j->lock);
}

void job_free(struct job *j)
{
    if (j == NULL)
        return;
    if (!j->ended_taken) {
        job_cancel(j);
        job_cancel(j);
    }
    pthread_join(j->thread, NULL);
    job_clear(j);
}
