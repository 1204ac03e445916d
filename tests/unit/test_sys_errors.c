// Errors in the middle of a transfer: an error is never taken for the end of a file.
#include <CUnit/CUnit.h>
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "storage/sys.h"

enum { PAGES = 2 };

// The process's own memory as a file: a page that can be read, and behind it one that answers EIO.
static void test_read_full_tells_an_error(void)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    uint8_t *memory = mmap(NULL, PAGES * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CU_ASSERT_PTR_NOT_EQUAL_FATAL(memory, MAP_FAILED);
    CU_ASSERT_EQUAL_FATAL(munmap(memory + page, page), 0);
    int fd = sys_openat(AT_FDCWD, "/proc/self/mem", O_RDONLY, 0);
    CU_ASSERT_FATAL(fd >= 0);
    uint8_t buf[64];
    uint64_t end = (uintptr_t)memory + page;
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, sizeof(buf), end - sizeof(buf)), (ssize_t)sizeof(buf));
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, sizeof(buf), end - 8), -EIO);
    CU_ASSERT_EQUAL(sys_pread_full(fd, buf, sizeof(buf), end), -EIO);
    sys_close(fd);
    munmap(memory, page);
}

void suite_sys_errors(void)
{
    CU_pSuite suite = CU_add_suite("sys_errors", NULL, NULL);
    CU_add_test(suite, "read_full_tells_an_error", test_read_full_tells_an_error);
}
