// The control messages, declared once: structs, codec, fuzz dictionary and the tables of PROTOCOL.md derive
// from here.
//
// F(type, name) is a field of fixed size: u8 u16 u32 u64, id (16 bytes, struct job_id), digest (16), secret
// (32). B(name, max) is a blob: u32 length of at most max, then bytes. Lists inside a blob: see "lists" in
// proto/message.h. In brackets: who sends it. C coordinator, A any agent, S source agent, D destination
// agent.
#ifndef PENSTOCK_PROTO_MESSAGES_H
#define PENSTOCK_PROTO_MESSAGES_H

#include "proto/limits.h"

// [C, A] first on every control connection, both ways. `features` a side has, `required` those it cannot do
// without.
#define MSG_HELLO(F, B) \
    F(u16, version)     \
    F(u16, version_min) F(u64, features) F(u64, required) B(software, 64) B(node, ADDRESS_BYTES_MAX)
// [C, A] an error value. From an agent before it opened: the refusal. Later: why it stops. From C: why the
// job ends.
#define FAIL_OTHER "other" // as `node`, from an agent: the other agent, or the path to it, is at fault
#define MSG_FAIL(F, B) \
    F(u8, class) F(u32, os) B(op, 31) B(node, ADDRESS_BYTES_MAX) B(path, 1023) B(text, TEXT_BYTES_MAX)
// [C, A] heartbeat; the other side answers with the same cookie.
#define MSG_PING(F, B) F(u64, cookie)
#define MSG_PONG(F, B) F(u64, cookie)

// [C] take a role (enum open_role) in a job. paths: list of blobs: the SRCs as the user wrote them, or the
// one DST. For a destination also: boot and sources as SOURCE_OPENED gave them. OPEN_VERIFY: paths has the
// one directory that holds the entries of a receipt; of the rest only job, host and user mean anything.
// memory: enum open_memory; memory_files and memory_bytes: of a source that is made, so many files of so many
// bytes each.
#define MSG_OPEN(F, B)   \
    F(u8, role)          \
    F(id, job)           \
    F(id, agent)         \
    F(secret, secret)    \
    F(u32, stripe_bytes) \
    F(u32, streams)      \
    F(u8, engine)        \
    F(u8, direct)        \
    F(u8, encrypt)       \
    F(u64, rate_bits)    \
    F(u32, io_timeout_s) \
    F(u8, memory)        \
    F(u32, memory_files) \
    F(u64, memory_bytes) \
    B(host, ADDRESS_BYTES_MAX) B(user, 64) B(paths, SRC_BYTES_MAX) B(boot, 63) B(sources, NAMES_BYTES_MAX)
// [S] sources: list of {u8 type as enum entry_type, u8 contents (trailing slash), u64 dev, u64 inode, blob
// base name}.
#define MSG_SOURCE_OPENED(F, B) \
    F(u16, port) B(boot, 63) B(engine, 160) B(sources, NAMES_BYTES_MAX) B(addresses, 4 * KIB)
// [D] root: the resolved destination root for people; place: the same as OPEN takes it at this agent, "" when
// it cannot be told. names: list of blobs, per source its path beneath that root. dev, inode: of the root
// when S runs on the same boot of the same host, else 0, 0.
#define MSG_DEST_OPENED(F, B) \
    F(u16, port)              \
    F(u64, dev)               \
    F(u64, inode)             \
    B(boot, 63)               \
    B(engine, 160) B(root, 2 * KIB) B(place, PATH_BYTES_MAX) B(names, NAMES_BYTES_MAX) B(addresses, 4 * KIB)

// [C] expect or dial (enum link_way) the connections of a session: the peer connection, and when it stands
// streams 0..streams-1.
// acceptor: the accepting agent's name in preambles. addresses: list of blobs "HOST:PORT" to try in order.
#define MSG_LINK(F, B) F(u32, session) F(u8, dial) F(u32, streams) F(id, acceptor) B(addresses, 4 * KIB)
// [A] a connection of the session stands at this end. kind as enum greet_kind.
#define MSG_LINKED(F, B) \
    F(u32, session)      \
    F(u8, kind) F(u32, stream) F(u32, attempt) B(local, ADDRESS_BYTES_MAX) B(remote, ADDRESS_BYTES_MAX)
// [A] it could not be dialled (all addresses), with the error of the last.
#define MSG_LINK_FAILED(F, B) \
    F(u32, session) F(u8, kind) F(u32, stream) F(u32, attempt) F(u32, os) B(text, TEXT_BYTES_MAX)
// [A, and C on to S] a stream attempt is over at this end. From D, after all that came on it has been handed
// to commit: `frames` = frames fully received; those sent after them go back to the pool. From S: frames put
// on the wire.
#define MSG_STREAM_ENDED(F, B) \
    F(u32, session)            \
    F(u32, stream) F(u32, attempt) F(u8, clean) F(u64, frames) F(u32, os) B(text, TEXT_BYTES_MAX)
// [C to the dialler] dial this stream again as `attempt`.
#define MSG_REDIAL(F, B) F(u32, session) F(u32, stream) F(u32, attempt)

// [C to S] walk. names: as D gave them. avoid: the destination root, or 0, 0.
#define MSG_WALK(F, B) F(u64, avoid_dev) F(u64, avoid_inode) B(names, NAMES_BYTES_MAX)
// [S] a segment was closed and sent to its home agent. retry: it is the segment of files tried once more.
#define MSG_SEGMENT_CLOSED(F, B) \
    F(u64, segment) F(u8, last) F(u8, retry) F(u32, entries) F(u64, files) F(u64, bytes) F(digest, digest)
// [D] it was compared: entries done without data (moved: made or refreshed; skipped; failed), and the layout
// of the rest.
#define MSG_SEGMENT_COMPARED(F, B) F(u64, segment) F(u64, stripes) F(u64, bytes) F(digest, layout)
// [S] the same layout, computed from the need answer.
#define MSG_SEGMENT_LAID(F, B) F(u64, segment) F(u64, stripes) F(u64, bytes) F(digest, layout)
// [C to S, D] its first stripe.
#define MSG_SEGMENT_PLACE(F, B) F(u64, segment) F(u64, first)
// [C to D; D back to C; C to S] stripes first..first+count-1 of a segment, to be sent by a session within
// wait_ms. It goes to D first, and to S when D has answered with the same words, so that no frame comes
// before the lease that allows it.
#define MSG_LEASE(F, B) \
    F(u64, lease) F(u32, epoch) F(u32, session) F(u64, segment) F(u64, first) F(u32, count) F(u32, wait_ms)
// [C to S, D] every stripe of the lease is durable or settled.
#define MSG_LEASE_DONE(F, B) F(u64, lease)
// [D, and C on to S when settled] runs: list of {u64 first, u64 count}. Durable, or, settled = 1, not needed
// any more since their file failed: never to be sent. bytes: of the durable ones, less those of packed files
// that failed.
#define MSG_STRIPES_DONE(F, B) F(u8, settled) F(u64, bytes) B(runs, 32 * KIB)
// [D, and C on to S] a stripe came with a wrong tag or digest: to be sent again.
#define MSG_STRIPE_BAD(F, B) F(u64, stripe)
// [D] entries settled, in receipt form (proto/receipt.h): published, skipped or failed. [S] of those that
// were left to the retry and could not be listed again; segment: 2^64 - 1.
#define MSG_ENTRIES_DONE(F, B) F(u64, segment) B(records, 96 * KIB)
// [A] what went wrong with one path; count says how it is counted (enum problem_count). With PROBLEM_RETRY C
// passes it on to S, which takes entry `entry` of that segment into the retry segment.
#define MSG_PROBLEM(F, B) \
    F(u64, segment)       \
    F(u32, entry) F(u8, count) F(u8, class) F(u32, os) B(op, 31) B(path, 1023) B(text, TEXT_BYTES_MAX)
// [D] every entry of the segment is settled; [C to S, D] forget it.
#define MSG_SEGMENT_DONE(F, B) F(u64, segment)
// [C to S] all segments so far are done: close the retry segment, or say that there is none (SEGMENT_CLOSED
// with 0 entries).
#define MSG_RETRY(F, B) F(u8, unused)
// [C to D] closing pass: directory metadata; [D] it is done and synced, or, more = 1, so much of it is done.
#define MSG_FINISH(F, B)   F(u8, unused)
#define MSG_FINISHED(F, B) F(u64, directories) F(u8, more)
// [C] the job is over for this agent. finished: D removes `.penstock/`. [A] last word; then the connection
// closes. Of a job that was not finished D says what it keeps of files that are not complete, and what is
// free.
#define MSG_CLOSE(F, B)  F(u8, finished)
#define MSG_CLOSED(F, B) F(u64, resident_bytes) F(u64, cpu_us) F(u64, kept_bytes) F(u64, free_bytes)
// [A] what one stream has done so far, about once a second and at its end.
#define MSG_STREAM_STATS(F, B) \
    F(u32, session)            \
    F(u32, stream) F(u64, bytes) F(u64, resent_bytes) F(u64, elapsed_us) F(u64, retransmits) F(u32, rtt_us)

// [A] what people should know, in the words of an error: storage that is slow to answer, and that it has
// answered; promises that are read again.
#define MSG_NOTICE(F, B) B(op, 31) B(path, 1023) B(text, TEXT_BYTES_MAX)

// [A] role OPEN_VERIFY: the directory is there; root: its path for people.
#define MSG_VERIFY_OPENED(F, B) B(root, 2 * KIB)
// [C] read these entries again: list of blobs, at least one, each an entry record of a receipt
// (proto/receipt.h). At most CHECKS_OPEN_MAX are unanswered at any time.
#define MSG_CHECK(F, B) B(records, 64 * KIB)
// [A] the results for the oldest CHECK that is unanswered: list of results in the order of its entries
// (proto/check.h), and the bytes of content that were read for it.
#define MSG_CHECKED(F, B) F(u64, bytes) B(results, 16 * KIB)

//        number  NAME              name
#define MESSAGES(M)                           \
    M(1, HELLO, hello)                        \
    M(2, FAIL, fail)                          \
    M(3, PING, ping)                          \
    M(4, PONG, pong)                          \
    M(5, OPEN, open)                          \
    M(6, SOURCE_OPENED, source_opened)        \
    M(7, DEST_OPENED, dest_opened)            \
    M(8, LINK, link)                          \
    M(9, LINKED, linked)                      \
    M(10, LINK_FAILED, link_failed)           \
    M(11, STREAM_ENDED, stream_ended)         \
    M(12, REDIAL, redial)                     \
    M(13, WALK, walk)                         \
    M(14, SEGMENT_CLOSED, segment_closed)     \
    M(15, SEGMENT_COMPARED, segment_compared) \
    M(16, SEGMENT_LAID, segment_laid)         \
    M(17, SEGMENT_PLACE, segment_place)       \
    M(18, LEASE, lease)                       \
    M(19, LEASE_DONE, lease_done)             \
    M(20, STRIPES_DONE, stripes_done)         \
    M(21, STRIPE_BAD, stripe_bad)             \
    M(22, ENTRIES_DONE, entries_done)         \
    M(23, PROBLEM, problem)                   \
    M(24, SEGMENT_DONE, segment_done)         \
    M(25, RETRY, retry)                       \
    M(26, FINISH, finish)                     \
    M(27, FINISHED, finished)                 \
    M(28, CLOSE, close)                       \
    M(29, CLOSED, closed)                     \
    M(30, STREAM_STATS, stream_stats)         \
    M(31, VERIFY_OPENED, verify_opened)       \
    M(32, CHECK, check)                       \
    M(33, CHECKED, checked)                   \
    M(34, NOTICE, notice)

#endif
