// What a mount is called, for people: asked while the file system answers, told when it does not.
#ifndef PENSTOCK_STORAGE_MOUNT_H
#define PENSTOCK_STORAGE_MOUNT_H

#include <stddef.h>

// The mount that the open file was reached by, as "/mnt/point (ext4)"; "" when the kernel does not say (no
// /proc). Asks only /proc, never the file system.
void mount_name(int fd, char *out, size_t len);

// The same from the text of /proc/self/mountinfo; for the tests.
void mount_name_in(char *mountinfo, unsigned long id, char *out, size_t len);

#endif
