#include "storage/mount.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "proto/limits.h"
#include "storage/sys.h"

enum { MOUNTINFO_BYTES_MAX = 4 * MIB }; // ten thousand mounts; one beyond that has no name

// A file of /proc as a string, or NULL.
static char *proc_text(const char *path, size_t most)
{
    char *text = malloc(most + 1);
    int fd = text != NULL ? sys_openat(AT_FDCWD, path, O_RDONLY, 0) : -1;
    ssize_t n = fd >= 0 ? sys_pread_full(fd, text, most, 0) : -1;
    if (fd >= 0)
        (void)sys_close(fd); // only read from: a close tells nothing
    if (n < 0) {
        free(text);
        return NULL;
    }
    text[n] = '\0';
    return text;
}

// Spaces and backslashes are written \ooo there.
static void unescape(char *text)
{
    char *to = text;
    for (const char *at = text; *at != '\0';) {
        unsigned value;
        if (at[0] == '\\' && sscanf(at + 1, "%3o", &value) == 1) {
            *to++ = (char)value;
            at += 4;
        } else {
            *to++ = *at++;
        }
    }
    *to = '\0';
}

// A line is: id, parent, device, root, mount point, options, others, "-", type, source, options.
static void name_of(char *line, char *out, size_t len)
{
    char *type = strstr(line, " - "), *save = NULL, *point = NULL;
    if (type == NULL)
        return;
    *type = '\0';
    type += 3;
    type[strcspn(type, " ")] = '\0';
    for (int i = 0; i < 5; i++)
        point = strtok_r(i == 0 ? line : NULL, " ", &save);
    if (point == NULL)
        return;
    unescape(point);
    snprintf(out, len, "%s (%s)", point, type);
}

void mount_name_in(char *mountinfo, unsigned long id, char *out, size_t len)
{
    char *save = NULL;
    out[0] = '\0';
    for (char *line = strtok_r(mountinfo, "\n", &save); line != NULL; line = strtok_r(NULL, "\n", &save)) {
        if (strtoul(line, NULL, 10) != id)
            continue;
        name_of(line, out, len);
        return;
    }
}

void mount_name(int fd, char *out, size_t len)
{
    char path[64];
    out[0] = '\0';
    snprintf(path, sizeof path, "/proc/self/fdinfo/%d", fd);
    char *info = proc_text(path, 4 * KIB);
    const char *id = info != NULL ? strstr(info, "mnt_id:") : NULL;
    char *mounts = id != NULL ? proc_text("/proc/self/mountinfo", MOUNTINFO_BYTES_MAX) : NULL;
    if (mounts != NULL)
        mount_name_in(mounts, strtoul(id + strlen("mnt_id:"), NULL, 10), out, len);
    free(mounts);
    free(info);
}
