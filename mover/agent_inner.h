// The inside of an agent process, shared by agent.c, agent_open.c and the two roles, and by nobody else.
//
// Threads: the control thread (agent_run) speaks on the control channel, minds the door and never touches
// storage; the peer stream's thread walks (source) or compares (destination); data streams move stripes; the
// destination has a commit thread. They talk to the coordinator through the mailbox.
#ifndef PENSTOCK_MOVER_AGENT_INNER_H
#define PENSTOCK_MOVER_AGENT_INNER_H

#include "mover/agent.h"
#include "mover/channel.h"
#include "mover/door.h"
#include "mover/engine.h"
#include "mover/mailbox.h"
#include "mover/storage_watch.h"
#include "mover/stream.h"
#include "mover/work.h"
#include "storage/memory.h"
#include "storage/source.h"
#include "storage/walk.h"

// The job as OPEN gave it.
struct agent_job {
    struct job_id id;
    struct job_id agent; // what the job is called in preambles to this agent
    struct secret secret;
    uint32_t stripe_bytes, streams, slots;
    struct engine_config engine;
    enum direct_mode direct;
    bool encrypt;
    uint64_t rate_bits;
    uint32_t io_timeout_s;
    enum open_memory memory;
    uint32_t memory_files;
    uint64_t memory_bytes;
    char host[ADDRESS_BYTES_MAX], user[64];
};

struct agent;

// What a role provides. All functions but the run and begin/end ones are called by the control thread.
struct role {
    // Opens the paths; on 0 fills *opened (SOURCE_OPENED or DEST_OPENED, without port, boot, engine and
    // addresses, which the agent adds; or VERIFY_OPENED); its blobs live in the role.
    int (*open)(struct agent *a, const struct msg_open *m, struct message *opened, void **self,
                struct err *err);
    // A message of the coordinator that the agent does not handle itself. -EPROTO: not for this role.
    int (*message)(void *self, const struct message *m);
    // Threads of the role are to end; the streams have been told already. Then they are joined.
    void (*stop)(void *self);
    // After all threads have ended. finished: the job is complete.
    void (*close)(void *self, bool finished);
    void (*run_peer)(void *self, struct stream *s, const struct conn *conn, struct conn_end *end);
    void (*begin_data)(void *self, struct stream *s); // in the stream's thread: makes its worker
    void (*end_data)(void *self, struct stream *s);
    void (*run_data)(void *self, struct stream *s, const struct conn *conn, struct conn_end *end);
};
extern const struct role role_source, role_dest;
extern const struct role role_verify; // has no peer and no streams: their functions are NULL

enum { AGENT_LISTEN_MAX = NET_LISTEN_MAX + 1 }; // TCP, and inside.h

struct agent {
    const struct agent_config *cfg;
    struct channel *control;
    struct mailbox *mailbox;
    struct mail *mail; // out of the mailbox: waits for room on the control channel
    struct door *door;
    int listen_fds[AGENT_LISTEN_MAX];
    int listen_count;
    uint16_t port;
    bool hello, opened, closing, finished, over;
    bool resting; // accept found no descriptor: the listener rests until one is given back
    uint64_t ping_ns;
    struct storage_watch *watch; // of the roles that transfer; else NULL
    bool unanswered;             // its time limit has passed, and FAIL is said
    struct agent_job job;
    const struct role *role;
    void *self;
    struct stream *peer;
    struct stream **streams;
    struct job_id acceptor; // whom to dial: its name in the preamble
    uint8_t *addresses;     // and where
    size_t addresses_len;
    enum link_way way;
    uint32_t dialled;                // streams that were dialled for the first time
    uint64_t kept_bytes, free_bytes; // for CLOSED; the role's close sets them
};

// Any thread: posts FAIL; the coordinator then closes the job.
void agent_fail(struct agent *a, const struct err *err);
// Any thread: one path went wrong.
void agent_problem(struct agent *a, uint64_t segment, uint32_t entry, enum problem_count count,
                   const struct err *err);
// Any thread: something that people may want to know.
void agent_notice(struct agent *a, const char *fmt, ...) PRINTF_LIKE(2, 3);
void agent_notice_err(struct agent *a, const struct err *err); // its operation, path and text
// The peer connection ended with -errno before the job did.
void agent_peer_lost(struct agent *a, int error);
// The cap of one stream in bytes per second; 0: none.
uint64_t agent_stream_rate(const struct agent *a);
// Control thread: every data stream looks for work.
void agent_wake_streams(struct agent *a);

// Control thread: says why the job is not taken; the coordinator's CLOSE ends it.
MUST_CHECK int agent_refuse(struct agent *a, const struct err *err);

// agent_job.c
MUST_CHECK int agent_open(struct agent *a, const struct msg_open *m);
// One line about the job to whoever runs the agent.
void agent_audit(struct agent *a, const char *what);

// agent_open.c: paths of a job beneath the agent's root, or free for --stdio.
// One SRC as the user wrote it. Fills *out (fd and strings are the caller's) and the record for
// SOURCE_OPENED.
struct source_found {
    enum entry_type type;
    bool contents;
    uint64_t dev, inode;
    char name[NAME_BYTES_MAX + 1];
};
MUST_CHECK int agent_open_source(const struct agent_config *cfg, const struct blob *path,
                                 struct walk_source *out, struct source_found *found, struct err *err);
// DST: finds or makes the destination root for these sources. names[i] (malloc'ed) is where source i goes
// beneath it; *shown the resolved path for people, *place the same as OPEN takes it (malloc'ed; "" when it
// cannot be told). Returns the descriptor of the root.
MUST_CHECK int agent_open_dest(const struct agent_config *cfg, const struct blob *path,
                               const struct source_found *sources, uint32_t count, bool same_host,
                               char **names, char **shown, char **place, struct err *err);
// A directory that is there; *shown is its path for people (malloc'ed). Returns its descriptor.
MUST_CHECK int agent_open_folder(const struct agent_config *cfg, const struct blob *path, char **shown,
                                 struct err *err);

#endif
