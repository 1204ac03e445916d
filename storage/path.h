// Paths beneath a root, by held descriptors: nothing here ever follows a symbolic link or leaves the root,
// whatever another process does to the tree meanwhile. openat2(RESOLVE_BENEATH|NO_SYMLINKS) where the kernel
// has it, else a walk, component by component, with O_NOFOLLOW|O_DIRECTORY. Paths are raw bytes, checked by
// manifest_path_safe by the caller; they may be longer than PATH_MAX (walked in pieces). A component that is
// a link is -ELOOP (ENOTDIR from the kernel's walk is told so too when the component is a link).
#ifndef PENSTOCK_STORAGE_PATH_H
#define PENSTOCK_STORAGE_PATH_H

#include "proto/base.h"
#include "proto/limits.h"
#include "storage/sys.h"

// Opens `path` beneath root_fd ("" = the root itself, then flags must include O_DIRECTORY or O_PATH).
// O_NOFOLLOW is implied.
MUST_CHECK int path_open(int root_fd, const void *path, size_t len, int flags, mode_t mode);

// Opens the directory that holds the last component and copies that component out (name[NAME_BYTES_MAX + 1],
// terminated). The caller closes the descriptor. path must not be "".
MUST_CHECK int path_open_parent(int root_fd, const void *path, size_t len, char *name);

// Remembers the last parent directories opened, so that a run of files in one folder costs one open: one
// cache per thread.
struct path_cache;
MUST_CHECK struct path_cache *path_cache_new(int root_fd); // borrows root_fd
void path_cache_free(struct path_cache *c);
// As path_open_parent, but the descriptor stays the cache's: valid until the next call.
MUST_CHECK int path_cache_parent(struct path_cache *c, const void *path, size_t len, char *name);
// Whether the directory that path_cache_parent gave last held nothing when it was asked first since the cache
// opened it. false also where it cannot be told.
bool path_cache_empty(struct path_cache *c);
// Forget what is remembered (a directory may have been replaced).
void path_cache_clear(struct path_cache *c);

// Makes the directory and every missing parent (mode 0700 | mode); 0 also when it is there as a directory
// already; *made tells whether the last component is new. A component that is something else: -ENOTDIR, a
// link: -ELOOP.
MUST_CHECK int path_mkdirs(int root_fd, const void *path, size_t len, mode_t mode, bool *made);

// Removes a directory tree beneath dir_fd by name, never following links; missing is 0. Returns the first
// error.
MUST_CHECK int path_remove_tree(int dir_fd, const char *name);

// A file of our own, directly in `dir_fd`: opened with `flags`, O_NOFOLLOW and O_NONBLOCK, mode 0600 where it
// is made. -EINVAL: it is no regular file. *st is of the open file.
MUST_CHECK int path_open_own(int dir_fd, const char *name, int flags, struct stat *st);

#endif
