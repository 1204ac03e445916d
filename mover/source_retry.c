// Files that changed while they were read, on their way into the retry segment.
#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "mover/source_agent.h"

int retry_keep(struct source_agent *s, const struct entry *e)
{
    struct blob path = blob_of(e->path, e->path_len);
    struct retry_entry *r = calloc(1, sizeof *r);
    char *copy = r != NULL ? blob_copy(&path) : NULL;
    if (copy == NULL) {
        free(r);
        return -ENOMEM;
    }
    r->root = e->root;
    r->path = copy;
    r->last = (struct receipt_entry){
        .type = e->type, .proof = PROOF_NONE, .mode = e->mode, .size = e->size, .mtime = e->mtime};
    pthread_mutex_lock(&s->lock);
    r->next = s->retries;
    s->retries = r;
    pthread_mutex_unlock(&s->lock);
    return 0;
}

void retry_entries_free(struct retry_entry *list)
{
    while (list != NULL) {
        struct retry_entry *r = list;
        list = r->next;
        free(r->path);
        free(r);
    }
}

// The path of a file at the source from its path at the destination: `to` of its root gives way to `from`.
static char *source_path(const struct walk_source *root, const char *path)
{
    size_t to = strlen(root->to), from = strlen(root->from);
    const char *rest = path + to;
    if (to > 0 && *rest == '/')
        rest++;
    char *out = malloc(from + 1 + strlen(rest) + 1);
    if (out == NULL)
        return NULL;
    memcpy(out, root->from, from);
    if (from > 0 && *rest != '\0')
        out[from++] = '/';
    memcpy(out + from, rest, strlen(rest) + 1);
    return out;
}

int retry_take(struct source_agent *s, struct retry *out)
{
    pthread_mutex_lock(&s->lock);
    struct retry_entry *list = s->retries;
    s->retries = NULL;
    pthread_mutex_unlock(&s->lock);
    uint32_t count = 0;
    for (const struct retry_entry *r = list; r != NULL; r = r->next)
        count++;
    out->roots = calloc((size_t)count + 1, sizeof *out->roots);
    out->files = calloc((size_t)count + 1, sizeof *out->files);
    int rc = out->roots != NULL && out->files != NULL ? 0 : -ENOMEM;
    for (struct retry_entry *r = list; r != NULL && rc == 0; r = r->next) {
        const struct walk_source *root = &s->roots[r->root];
        struct walk_source *again = &out->roots[out->count];
        out->files[out->count] = (struct retry_file){.root = r->root, .last = r->last};
        *again = (struct walk_source){.fd = root->fd, .from = source_path(root, r->path), .to = r->path};
        r->path = NULL;
        out->count++;
        rc = again->from != NULL ? 0 : -ENOMEM;
    }
    retry_entries_free(list);
    return rc;
}

void retry_free(struct retry *r)
{
    for (uint32_t i = 0; i < r->count; i++) {
        free(r->roots[i].from);
        free(r->roots[i].to);
    }
    free(r->roots);
    free(r->files);
}

void retry_settle(struct source_agent *s, struct retry *r, uint32_t i, const struct err *err)
{
    struct retry_file *f = &r->files[i];
    if (f->told)
        return;
    f->told = true;
    struct receipt_entry e = f->last;
    e.outcome = err->class == ERR_CHANGED    ? RECEIPT_CHANGED
                : err->class == ERR_VANISHED ? RECEIPT_VANISHED
                                             : RECEIPT_FAILED;
    e.path = blob_text(r->roots[i].to);
    uint8_t one[PATH_BYTES_MAX + 128], list[PATH_BYTES_MAX + 256];
    int64_t len = receipt_entry_encode(&e, one, sizeof one);
    assert(len > 0); // the buffer takes the longest path
    struct wire_writer w;
    wire_writer_init(&w, list, sizeof list);
    wire_put_blob(&w, one, (size_t)len);
    struct message m = {
        .type = MESSAGE_ENTRIES_DONE,
        .entries_done = {.segment = UINT64_MAX, .records = blob_of(list, (size_t)(w.at - w.start))}};
    mailbox_post(s->agent->mailbox, &m);
    agent_problem(s->agent, UINT64_MAX, 0, PROBLEM_RECORDED, err);
}
