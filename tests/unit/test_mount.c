// What a mount is called.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <CUnit/CUnit.h>

#include "proto/base.h"
#include "storage/mount.h"

static void names(void)
{
    static const char text[] =
        "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n"
        "122 22 0:45 /in/side /mnt/two\\040words rw - nfs4 server:/export rw,vers=4.2\n"
        "2 22 0:46 / /back\\134slash rw master:3 propagate_from:2 - fuse.sshfs a b\n"
        "7 22 0:47 cut short\n"
        "8 22 - x\n"
        "9";
    static const struct {
        unsigned long id;
        const char *name;
    } table[] = {{22, "/ (ext4)"},
                 {122, "/mnt/two words (nfs4)"},
                 {2, "/back\\slash (fuse.sshfs)"},
                 {7, ""},
                 {8, ""},
                 {9, ""},
                 {12, ""},
                 {0, ""}};
    for (size_t i = 0; i < ARRAY_LEN(table); i++) {
        char out[64] = "?", *copy = strdup(text);
        mount_name_in(copy, table[i].id, out, sizeof out);
        CU_ASSERT_STRING_EQUAL(out, table[i].name);
        free(copy);
    }
    char small[8], *copy = strdup(text);
    mount_name_in(copy, 122, small, sizeof small);
    CU_ASSERT_STRING_EQUAL(small, "/mnt/tw"); // cut, but ended
    free(copy);
}

static void of_a_file(void)
{
    char out[64] = "?";
    int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    mount_name(fd, out, sizeof out);
    CU_ASSERT_STRING_EQUAL(out, "/proc (proc)");
    close(fd);
    mount_name(fd, out, sizeof out);
    CU_ASSERT_STRING_EQUAL(out, "");
}

void suite_mount(void)
{
    CU_pSuite s = CU_add_suite("mount", NULL, NULL);
    CU_add_test(s, "names in mountinfo", names);
    CU_add_test(s, "of an open file", of_a_file);
}
