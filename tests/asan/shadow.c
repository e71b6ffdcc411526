/* Keeps the addresses that AddressSanitizer takes free until Envoy loads the module that brings it: Envoy's allocator
 * takes addresses at random, and is in use by then. To be loaded into Envoy before all other libraries. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
#include <sys/mman.h>

/* A range of addresses. */
struct range {
    void *from;
    size_t len;
};

/* Of the sanitizer on Linux on x86-64: its shadow memory, and the memory that it allocates. */
static struct range ranges[] = {
    {(void *)0x00007fff7000, 0x10007fff8000 - 0x00007fff7000},
    {(void *)0x600000000000, 0x040000000000 + 0x001000000000},
};

__attribute__((constructor)) static void reserve(void) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
        if (mmap(ranges[i].from, ranges[i].len, PROT_NONE, flags, -1, 0) != ranges[i].from) {
            ranges[i].len = 0;
        }
    }
}

void *dlopen(const char *file, int mode) {
    void *(*next)(const char *, int) = (void *(*)(const char *, int))dlsym(RTLD_NEXT, "dlopen");
    if (file != NULL && strstr(file, "tollgate") != NULL) {
        for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++) {
            if (ranges[i].len != 0) {
                munmap(ranges[i].from, ranges[i].len);
                ranges[i].len = 0;
            }
        }
    }
    return next(file, mode);
}
