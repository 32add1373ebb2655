/* What a storm does to a process that has loaded this (LD_PRELOAD): its wall clock is wrong, or the disk under one
 * folder is read-only or slow. The file that $FAULTY_LIBC names says what is in force, and is mapped, so
 * that it changes while the process runs. Monotonic clocks and other folders are as ever.
 *
 *     cc -shared -fPIC -O2 -o faulty_libc.so faulty_libc.c
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

struct faults {                /* as loadtests/systems/faulty_libc.py writes it */
    volatile int64_t wall_s;   /* added to the wall clock */
    volatile int64_t read_only; /* nothing below the folder is written */
    volatile int64_t slow_us;  /* each read, write and fsync below the folder takes so much longer */
    char folder[1024];
};

static const struct faults *faults;

__attribute__((constructor)) static void map_faults(void)
{
    const char *path = getenv("FAULTY_LIBC");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0)
        return; /* inside a replica's walls, say */
    void *mapped = mmap(NULL, sizeof(struct faults), PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (mapped != MAP_FAILED)
        faults = mapped;
}

/* The wall clock */

int clock_gettime(clockid_t which, struct timespec *to)
{
    int status = (int)syscall(SYS_clock_gettime, which, to);
    if (!status && faults && (which == CLOCK_REALTIME || which == CLOCK_REALTIME_COARSE))
        to->tv_sec += faults->wall_s;
    return status;
}

int gettimeofday(struct timeval *restrict to, void *restrict zone)
{
    struct timespec now;
    int status = clock_gettime(CLOCK_REALTIME, &now);
    if (to) {
        to->tv_sec = now.tv_sec;
        to->tv_usec = now.tv_nsec / 1000;
    }
    return status;
}

time_t time(time_t *to)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to)
        *to = now.tv_sec;
    return now.tv_sec;
}

/* The disk */

static int below(const char *path)
{
    size_t length = strlen(faults->folder);
    return length && !strncmp(path, faults->folder, length);
}

static int is_ours(int file)
{
    if (!faults || (!faults->read_only && !faults->slow_us))
        return 0;
    char link[40], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return below(path);
}

/* Whether it must not be written; returns after the time that a slow disk takes. */
static int refused(int file, int writes)
{
    if (!is_ours(file))
        return 0;
    if (faults->slow_us)
        usleep((useconds_t)faults->slow_us);
    if (writes && faults->read_only) {
        errno = EROFS;
        return 1;
    }
    return 0;
}

ssize_t read(int file, void *to, size_t count)
{
    refused(file, 0);
    return syscall(SYS_read, file, to, count);
}

ssize_t pread64(int file, void *to, size_t count, off64_t at)
{
    refused(file, 0);
    return syscall(SYS_pread64, file, to, count, at);
}

ssize_t write(int file, const void *from, size_t count)
{
    return refused(file, 1) ? -1 : syscall(SYS_write, file, from, count);
}

ssize_t pwrite64(int file, const void *from, size_t count, off64_t at)
{
    return refused(file, 1) ? -1 : syscall(SYS_pwrite64, file, from, count, at);
}

ssize_t pwrite(int, const void *, size_t, off_t) __attribute__((alias("pwrite64")));

int fsync(int file)
{
    return refused(file, 1) ? -1 : (int)syscall(SYS_fsync, file);
}

int fdatasync(int file)
{
    return refused(file, 1) ? -1 : (int)syscall(SYS_fdatasync, file);
}

int ftruncate64(int file, off64_t size)
{
    return refused(file, 1) ? -1 : (int)syscall(SYS_ftruncate, file, size);
}

static int may_not_open(const char *path, int flags)
{
    int writes = (flags & O_ACCMODE) != O_RDONLY || (flags & (O_CREAT | O_TRUNC));
    if (!faults || !faults->read_only || !writes || !below(path))
        return 0;
    errno = EROFS;
    return 1;
}

int open64(const char *path, int flags, ...)
{
    va_list more;
    va_start(more, flags);
    mode_t mode = va_arg(more, mode_t);
    va_end(more);
    return may_not_open(path, flags) ? -1
                                     : (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int open(const char *, int, ...) __attribute__((alias("open64")));
