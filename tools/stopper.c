#include "tools/stopper.h"

#include <assert.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

struct stopper {
    sigset_t set;
    pthread_t thread;
    pthread_mutex_t lock;
    struct job *job; // under `lock`; NULL before stopper_watch
    atomic_uint count;
};

// Ends the thread when the process sends it to itself; from others it is one more request to stop.
enum { END_SIGNAL = SIGUSR1 };

static bool is_end(const siginfo_t *info)
{
    // The C library may tell SI_TKILL as SI_USER.
    bool sent = info->si_code == SI_TKILL || info->si_code == SI_USER;
    return info->si_signo == END_SIGNAL && sent && info->si_pid == getpid();
}

static void *stopper_run(void *arg)
{
    struct stopper *s = arg;
    while (true) {
        siginfo_t info;
        if (sigwaitinfo(&s->set, &info) < 0)
            continue; // interrupted by a signal of the system's own
        if (is_end(&info))
            return NULL;
        pthread_mutex_lock(&s->lock);
        atomic_fetch_add(&s->count, 1);
        if (s->job != NULL)
            job_cancel(s->job);
        pthread_mutex_unlock(&s->lock);
    }
}

int stopper_new(struct stopper **out)
{
    struct sigaction hangup;
    struct stopper *s = calloc(1, sizeof(*s));
    if (s == NULL)
        return -ENOMEM;
    pthread_mutex_init(&s->lock, NULL);
    sigemptyset(&s->set);
    sigaddset(&s->set, SIGINT);
    sigaddset(&s->set, SIGTERM);
    sigaddset(&s->set, END_SIGNAL);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN)
        sigaddset(&s->set, SIGHUP);
    int rc = pthread_sigmask(SIG_BLOCK, &s->set, NULL);
    if (rc == 0)
        rc = pthread_create(&s->thread, NULL, stopper_run, s);
    if (rc != 0) {
        free(s);
        return -rc;
    }
    *out = s;
    return 0;
}

void stopper_watch(struct stopper *s, struct job *job)
{
    pthread_mutex_lock(&s->lock);
    s->job = job;
    for (unsigned i = 0; i < atomic_load(&s->count); i++)
        job_cancel(job);
    pthread_mutex_unlock(&s->lock);
}

unsigned stopper_count(const struct stopper *s)
{
    return atomic_load(&s->count);
}

void stopper_free(struct stopper *s)
{
    if (s == NULL)
        return;
    int rc = pthread_kill(s->thread, END_SIGNAL);
    assert(rc == 0);
    rc = pthread_join(s->thread, NULL);
    assert(rc == 0);
    pthread_mutex_destroy(&s->lock);
    free(s);
}
