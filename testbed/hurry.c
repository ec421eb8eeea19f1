/* Lets a daemon live in a faster time: preloaded, it multiplies what clocks say and divides what is waited.

   HURRY_FACTOR is how many seconds pass in one; HURRY_ORIGIN_S is the instant at which both
   times were the same, so that all processes agree. The kernel's calls are made directly,
   since an allocator may ask for the time before anything else is there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#define BILLION 1000000000LL

static long long factor, origin_s;

static void learn(void) {
    if (factor) return;
    const char *text = getenv("HURRY_ORIGIN_S");
    origin_s = text ? atoll(text) : 0;
    text = getenv("HURRY_FACTOR");
    long long told = text ? atoll(text) : 1;
    factor = told > 0 ? told : 1;
}

static long long real_ns(clockid_t clock) {
    struct timespec at;
    syscall(SYS_clock_gettime, clock, &at);
    return at.tv_sec * BILLION + at.tv_nsec;
}

static long long hurried_ns(clockid_t clock) {
    learn();
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        return origin_s * BILLION + (real_ns(CLOCK_REALTIME) - origin_s * BILLION) * factor;
    if (clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE || clock == CLOCK_BOOTTIME)
        return real_ns(clock) * factor;
    return real_ns(clock);
}

int clock_gettime(clockid_t clock, struct timespec *at) {
    long long now = hurried_ns(clock);
    at->tv_sec = now / BILLION;
    at->tv_nsec = now % BILLION;
    return 0;
}

int gettimeofday(struct timeval *restrict at, void *restrict zone) {
    (void)zone;
    long long now = hurried_ns(CLOCK_REALTIME);
    at->tv_sec = now / BILLION;
    at->tv_usec = now % BILLION / 1000;
    return 0;
}

time_t time(time_t *at) {
    time_t now = hurried_ns(CLOCK_REALTIME) / BILLION;
    if (at) *at = now;
    return now;
}

static struct timespec shorter(long long wait_ns) {
    learn();
    wait_ns /= factor;
    return (struct timespec){.tv_sec = wait_ns / BILLION, .tv_nsec = wait_ns % BILLION};
}

static long long in_ns(const struct timespec *wait) { return wait->tv_sec * BILLION + wait->tv_nsec; }

int nanosleep(const struct timespec *wanted, struct timespec *left) {
    struct timespec wait = shorter(in_ns(wanted));
    if (left) left->tv_sec = left->tv_nsec = 0;
    return syscall(SYS_nanosleep, &wait, NULL);
}

unsigned int sleep(unsigned int seconds) {
    struct timespec wait = shorter(seconds * BILLION);
    syscall(SYS_nanosleep, &wait, NULL);
    return 0;
}

int usleep(useconds_t microseconds) {
    struct timespec wait = shorter(microseconds * 1000LL);
    return syscall(SYS_nanosleep, &wait, NULL);
}

int poll(struct pollfd *files, nfds_t number, int wait_ms) {
    if (wait_ms < 0) return syscall(SYS_ppoll, files, number, NULL, NULL, 0);
    struct timespec wait = shorter(wait_ms * 1000000LL);
    return syscall(SYS_ppoll, files, number, &wait, NULL, 0);
}

int select(int number, fd_set *r, fd_set *w, fd_set *e, struct timeval *wanted) {
    if (!wanted) return syscall(SYS_pselect6, number, r, w, e, NULL, NULL);
    struct timespec wait = shorter(wanted->tv_sec * BILLION + wanted->tv_usec * 1000LL);
    return syscall(SYS_pselect6, number, r, w, e, &wait, NULL);
}

int epoll_wait(int file, struct epoll_event *events, int most, int wait_ms) {
    learn();
    int wait = wait_ms > 0 ? (int)((wait_ms + factor - 1) / factor) : wait_ms;
    return syscall(SYS_epoll_pwait, file, events, most, wait, NULL, 8);
}

/* Conditions wait until an instant, in hurried time; the library wants it in real time. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    static int (*wait)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!wait) wait = dlvsym(RTLD_NEXT, "pthread_cond_timedwait", "GLIBC_2.3.2");
    long long left = (in_ns(until) - hurried_ns(CLOCK_REALTIME)) / factor;
    long long at = real_ns(CLOCK_REALTIME) + (left > 0 ? left : 0);
    struct timespec real = {.tv_sec = at / BILLION, .tv_nsec = at % BILLION};
    return wait(condition, mutex, &real);
}
