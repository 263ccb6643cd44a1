/* One number that a test and a server share: the file that an environment variable names, mapped into memory. */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static volatile int64_t *mapped(const char *variable)
{
    static volatile int64_t none, *number;
    if (!number) {
        const char *path = getenv(variable);
        int file = path ? open(path, O_RDWR) : -1;
        void *found = file < 0 ? MAP_FAILED : mmap(NULL, sizeof none, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        number = found == MAP_FAILED ? &none : found;
        if (file >= 0)
            close(file);
    }
    return number;
}
