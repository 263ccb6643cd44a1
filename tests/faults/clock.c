/* A wall clock that a test can set: seconds to add are read from a file that is mapped into memory. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

#include "mapped.h"

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    static int (*real)(struct timeval *, void *);
    if (!real)
        real = (int (*)(struct timeval *, void *))dlsym(RTLD_NEXT, "gettimeofday");
    int failed = real(now, zone);
    now->tv_sec += *mapped("CLOCK_OFFSET_FILE");
    return failed;
}

time_t time(time_t *out)
{
    struct timeval now;
    gettimeofday(&now, NULL);
    if (out)
        *out = now.tv_sec;
    return now.tv_sec;
}
