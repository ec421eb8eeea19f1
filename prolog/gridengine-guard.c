/*
 * What Grid Engine starts in place of its root hooks, so that no job can put a queue in error.
 *
 * Grid Engine gives a job's own environment to root's prolog. With OPTIND=x in it, dash ends with
 * status 2 before it reads a line, with some GLIBC_TUNABLES or MALLOC_TOP_PAD_ any program ends in
 * its loader, and every status but 0, 99 and 100 disables the queue on that node: each node in its
 * turn, as the job is tried again. So this program has no C library, hence no loader and nothing
 * that reads an environment. It is installed as `prolog`, `pe-start` and `epilog`, and starts the
 * script of the same name with `.sh` at its end beside it, with an environment of its own.
 *
 * Of the job's variables it hands on those below, cut off where they are too long to be right. It waits
 * for a bounded time, and whatever becomes of the script, ends with 0, 99 or 100.
 *
 *     cc -Os -static -nostdlib -ffreestanding -fno-stack-protector -fno-builtin gridengine-guard.c -o guard
 */

#ifndef FOLDER
#define FOLDER "/usr/lib/outrider/gridengine/"
#endif
#ifndef LIMIT_S
#define LIMIT_S 120
#endif

enum { GO = 0, LATER = 99, FAILED = 100, MOST_WORDS = 32, MOST_BYTES = 512, CHILD_ENDED = 17, KILL = 9 };
enum { BLOCK = 0, SET = 2, NOBODY_HANGS = 1, DIE_WITH_PARENT = 1 };

#if defined(__x86_64__)
enum { WRITE = 1, SIGMASK = 14, FORK = 57, EXECVE = 59, WAIT4 = 61, KILL_CALL = 62, SETPGID = 109, GETPPID = 110 };
enum { SIGTIMEDWAIT = 128, PRCTL = 157, EXIT = 231, CLOCK_GETTIME = 228 };
__asm__(".globl _start\n_start: xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call begin\n");
static long call(long number, long a, long b, long c, long d)
{
    long result;
    register long fourth __asm__("r10") = d;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(fourth) : "rcx", "r11", "memory");
    return result;
}
static long new_process(void) { return call(FORK, 0, 0, 0, 0); }
#elif defined(__aarch64__)
enum { WRITE = 64, EXIT = 94, CLOCK_GETTIME = 113, KILL_CALL = 129, SIGMASK = 135, SIGTIMEDWAIT = 137, SETPGID = 154 };
enum { PRCTL = 167, GETPPID = 173, CLONE = 220, EXECVE = 221, WAIT4 = 260 };
__asm__(".globl _start\n_start: mov x29,#0\n mov x0,sp\n and sp,x0,#-16\n bl begin\n");
static long call(long number, long a, long b, long c, long d)
{
    register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c, x3 __asm__("x3") = d;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3) : "memory");
    return x0;
}
static long new_process(void) { return call(CLONE, CHILD_ENDED, 0, 0, 0); }
#else
#error "this processor is not known: install the scripts themselves as prolog, pe-start and epilog"
#endif

static const char *const kept[] = {"OUTRIDER_TICKET=", "OUTRIDER_OPTIONS=", "SGE_ROOT=", "SGE_CELL=", "SGE_ARCH=",
                                   "SGE_QMASTER_PORT="};
enum { KEPT = sizeof kept / sizeof *kept };
static char values[KEPT][MOST_BYTES + 1], shepherd[32] = "--shepherd=", path[sizeof FOLDER + 16] = FOLDER;
static char *environment[KEPT + 3] = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
static char *words[MOST_WORDS + 3];

static int begins(const char *text, const char *with)
{
    while (*with)
        if (*text++ != *with++)
            return 0;
    return 1;
}

static int is_same(const char *one, const char *other)
{
    while (*one && *one == *other)
        one++, other++;
    return *one == *other;
}

static const char *last_part(const char *name)
{
    const char *part = name;
    for (; *name; name++)
        if (*name == '/')
            part = name + 1;
    return part;
}

static char *end_of(char *text)
{
    while (*text)
        text++;
    return text;
}

static void copy(char *to, const char *from, long most)
{
    while (most-- > 0 && *from)
        *to++ = *from++;
    *to = 0;
}

static void say(const char *words_of_error)
{
    long length = 0;
    while (words_of_error[length])
        length++;
    call(WRITE, 1, (long)words_of_error, length, 0);
}

static void choose_environment(char **given)
{
    char **next = environment + 2;
    for (int name = 0; name < KEPT; name++)
        for (char **each = given; *each; each++)
            if (begins(*each, kept[name])) {
                copy(values[name], *each, MOST_BYTES);
                *next++ = values[name];
                break;
            }
}

static void name_shepherd(void)
{
    char digits[20], *next = end_of(shepherd);
    long number = call(GETPPID, 0, 0, 0, 0), count = 0;
    do
        digits[count++] = '0' + number % 10;
    while (number /= 10);
    while (count)
        *next++ = digits[--count];
}

static long now_s(void)
{
    long moment[2] = {0, 0};
    call(CLOCK_GETTIME, 1, (long)moment, 0, 0);
    return moment[0];
}

/* How the script has ended: its status, or -1 if it was killed or takes too long. What it has left
 * running ends with it: nobody would wait for what that asks for. */
static int ended(long child)
{
    unsigned long child_ended = 1UL << (CHILD_ENDED - 1);
    long until_s = now_s() + LIMIT_S, limit[2] = {1, 0};
    int status = 0, is_over = 0;
    while (!is_over && call(WAIT4, child, (long)&status, NOBODY_HANGS, 0) == 0) {
        is_over = now_s() >= until_s;
        if (!is_over)
            call(SIGTIMEDWAIT, (long)&child_ended, 0, (long)limit, 8);
    }
    call(KILL_CALL, -child, KILL, 0, 0);
    if (is_over)
        call(KILL_CALL, child, KILL, 0, 0);
    return is_over || status & 0x7f ? -1 : status >> 8 & 0xff;
}

__attribute__((used, noreturn)) void begin(long *stack)
{
    long count = stack[0];
    char **given = (char **)(stack + 1), **variables = given + count + 1;
    const char *name = count ? last_part(given[0]) : "";
    int is_prolog = is_same(name, "prolog"), is_epilog = is_same(name, "epilog"), status = -1;
    unsigned long all = ~0UL, none = 0;

    if (!is_prolog && !is_epilog && !is_same(name, "pe-start")) {
        say("outrider: the guard of hooks is called prolog, pe-start or epilog, and nothing else\n");
        call(EXIT, FAILED, 0, 0, 0);
    }
    copy(end_of(path), name, 10);
    copy(end_of(path), ".sh", 4);
    choose_environment(variables);
    name_shepherd();
    words[0] = path, words[1] = shepherd;
    for (long each = 1; each < count && each < MOST_WORDS; each++)
        words[each + 1] = given[each];

    call(SIGMASK, BLOCK, (long)&all, 0, 8);
    long child = new_process();
    if (child == 0) {
        call(SETPGID, 0, 0, 0, 0);
        if (!is_epilog) /* Who is killed has nothing prepared behind its back. */
            call(PRCTL, DIE_WITH_PARENT, KILL, 0, 0);
        call(SIGMASK, SET, (long)&none, 0, 8);
        call(EXECVE, (long)path, (long)words, (long)environment, 0);
        call(EXIT, 1, 0, 0, 0);
    }
    if (child > 0)
        status = ended(child);
    if (is_epilog)
        call(EXIT, GO, 0, 0, 0);
    if (status != GO && status != LATER && status != FAILED) {
        say("outrider: this node could not prepare the image: its own script has failed; tell the administrator\n");
        status = FAILED;
    }
    call(EXIT, status, 0, 0, 0);
    __builtin_unreachable();
}
