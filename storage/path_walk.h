// The walk that stands in for openat2 where a kernel or a filter does not have it (storage/path.h): component
// by component, by held descriptors. Of its own header so that its tests do not need such a kernel.
#ifndef PENSTOCK_STORAGE_PATH_WALK_H
#define PENSTOCK_STORAGE_PATH_WALK_H

#include "proto/base.h"
#include "storage/sys.h"

// As path_open for a path that is not empty, with the same results and errors.
MUST_CHECK int path_walk_open(int root_fd, const void *path, size_t len, int flags, mode_t mode);

#endif
