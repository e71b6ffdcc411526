/* Makes the dynamic module allocate with AddressSanitizer's allocator. Envoy exports an allocator of its own, and
 * its names would be found first: the linker's --wrap leads the module's calls here instead. */
#include <stddef.h>

void *__interceptor_malloc(size_t);
void *__interceptor_calloc(size_t, size_t);
void *__interceptor_realloc(void *, size_t);
int __interceptor_posix_memalign(void **, size_t, size_t);
void __interceptor_free(void *);

void *__wrap_malloc(size_t size) { return __interceptor_malloc(size); }
void *__wrap_calloc(size_t count, size_t size) { return __interceptor_calloc(count, size); }
void *__wrap_realloc(void *old, size_t size) { return __interceptor_realloc(old, size); }
int __wrap_posix_memalign(void **to, size_t align, size_t size) {
    return __interceptor_posix_memalign(to, align, size);
}
void __wrap_free(void *old) { __interceptor_free(old); }

/* LLVM's instrumentation reads it; other compilers' libraries do not have it. */
int __asan_option_detect_stack_use_after_return;
