#include "tools/state.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "storage/sys.h"

static int choose(const char *given, char *out, size_t len)
{
    const char *state_home = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
    int written;
    if (given != NULL)
        written = snprintf(out, len, "%s", given);
    else if (state_home != NULL && state_home[0] == '/') // the standard has relative ones ignored
        written = snprintf(out, len, "%s/penstock", state_home);
    else if (home != NULL && home[0] == '/')
        written = snprintf(out, len, "%s/.local/state/penstock", home);
    else
        return -ENOENT;
    return written < 0 || (size_t)written >= len ? -ENAMETOOLONG : 0;
}

// Every missing folder of the path, links followed: the user's own names.
static int make_folders(char *path)
{
    for (char *at = path + 1;; at++) {
        if (*at != '/' && *at != '\0')
            continue;
        char kept = *at;
        *at = '\0';
        int rc = sys_mkdirat(AT_FDCWD, path, 0700);
        *at = kept;
        if (kept == '\0')
            return rc == -EEXIST ? 0 : rc;
        // One on the way that cannot be made may be there all the same (a read-only parent): the last one
        // tells.
    }
}

int state_folder(const char *given, char *out, size_t len, struct err *err)
{
    char path[PATH_MAX] = "", real[PATH_MAX];
    int rc = choose(given, path, sizeof(path));
    if (rc == 0)
        rc = make_folders(path);
    if (rc == 0 && realpath(path, real) == NULL)
        rc = -errno;
    if (rc == 0 && strlen(real) >= len)
        rc = -ENAMETOOLONG;
    if (rc < 0 && path[0] == '\0')
        err_set(err, ERR_START, 0, NULL, NULL, 0,
                "HOME names no folder for the state (--state DIR names one)");
    else if (rc < 0)
        err_set(err, ERR_START, -rc, "make the state folder", path, strlen(path), NULL);
    if (rc < 0)
        return rc;
    memcpy(out, real, strlen(real) + 1);
    return 0;
}
