/* Shared by every program of this directory: a deadline, checks that print the
 * expected and the actual result, and short forms of the public API.
 *
 * A failed check exits immediately with code 1, without PMIx_Finalize: the
 * launcher must handle that too. A process that is still running after
 * DEADLINE seconds prints where it hangs and exits with 124. */
#ifndef CHECK_H
#define CHECK_H

#define _GNU_SOURCE
#include <pmix.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MAYBE_UNUSED __attribute__((unused))
#ifndef DEADLINE
#define DEADLINE 60
#endif

/* This process, and the number of processes in its job; set by start(). */
static pmix_proc_t me MAYBE_UNUSED;
static uint32_t job_size MAYBE_UNUSED;

/* The check in progress; read only by the alarm handler. */
static const char *volatile check_file = "?";
static const char *volatile check_what = "nothing yet";
static volatile int check_line;

#define AT(what) (check_file = __FILE__, check_line = __LINE__, check_what = (what))

/* FILE:LINE PROGRAM rank RANK, without the directories of the file. */
MAYBE_UNUSED static int place(char *text, size_t size, const char *file, int line)
{
    const char *name = strrchr(file, '/');

    return snprintf(text, size, "%s:%d %s rank %u: ", name == NULL ? file : name + 1, line,
                    program_invocation_short_name, (unsigned)me.rank);
}

MAYBE_UNUSED static void on_deadline(int signal_number)
{
    char text[1024];
    int n = place(text, sizeof(text), check_file, check_line);

    n += snprintf(text + n, sizeof(text) - (size_t)n, "still waiting after %d s: %s\n", DEADLINE, check_what);
    (void)signal_number;
    if (write(STDERR_FILENO, text, n < (int)sizeof(text) ? (size_t)n : sizeof(text) - 1) < 0) {
        _exit(125);
    }
    _exit(124);
}

MAYBE_UNUSED __attribute__((noreturn, format(printf, 3, 4))) static void fail(const char *file, int line,
                                                                              const char *format, ...)
{
    char text[4096];
    int n = place(text, sizeof(text), file, line);
    va_list args;

    va_start(args, format);
    vsnprintf(text + n, sizeof(text) - (size_t)n, format, args);
    va_end(args);
    fprintf(stderr, "%s\n", text);
    fflush(NULL);
    _exit(1);
}

#define FAIL(...) fail(__FILE__, __LINE__, __VA_ARGS__)

/* A condition that must hold. */
#define CHECK(condition)                                   \
    do {                                                   \
        AT(#condition);                                    \
        if (!(condition)) {                                \
            FAIL("expected %s, which is not so", #condition); \
        }                                                  \
    } while (0)

/* A call that must return this status. */
#define CHECK_STATUS(call, expected)                                                                  \
    do {                                                                                              \
        AT(#call);                                                                                    \
        pmix_status_t got_ = (call);                                                                  \
        pmix_status_t want_ = (expected);                                                             \
        if (got_ != want_) {                                                                          \
            FAIL("%s: expected %s (%d), got %s (%d)", #call, PMIx_Error_string(want_), want_,         \
                 PMIx_Error_string(got_), got_);                                                      \
        }                                                                                             \
    } while (0)

/* A call that may return one of two statuses, because libraries differ. */
#define CHECK_EITHER(call, first, second)                                                             \
    do {                                                                                              \
        AT(#call);                                                                                    \
        pmix_status_t got_ = (call);                                                                  \
        pmix_status_t one_ = (first), two_ = (second);                                                \
        if (got_ != one_ && got_ != two_) {                                                           \
            FAIL("%s: expected %s (%d) or %s (%d), got %s (%d)", #call, PMIx_Error_string(one_), one_, \
                 PMIx_Error_string(two_), two_, PMIx_Error_string(got_), got_);                       \
        }                                                                                             \
    } while (0)

/* A call that must fail, whatever the reason it gives. */
#define CHECK_ERROR(call)                                          \
    do {                                                           \
        AT(#call);                                                 \
        pmix_status_t got_ = (call);                               \
        if (got_ == PMIX_SUCCESS) {                                \
            FAIL("%s: expected an error, got PMIX_SUCCESS", #call); \
        }                                                          \
    } while (0)

/* A call that succeeds; the operation may have been done in place. */
#define CHECK_OK(call) CHECK_STATUS(call, PMIX_SUCCESS)

#define CHECK_NUMBER(expression, expected)                                                                      \
    do {                                                                                                        \
        AT(#expression);                                                                                        \
        long long got_ = (long long)(expression), want_ = (long long)(expected);                                \
        if (got_ != want_) {                                                                                    \
            FAIL("%s: expected %s = %lld, got %lld", #expression, #expected, want_, got_);                      \
        }                                                                                                       \
    } while (0)

#define CHECK_TEXT(expression, expected)                                                                        \
    do {                                                                                                        \
        AT(#expression);                                                                                        \
        const char *got_ = (expression), *want_ = (expected);                                                   \
        if (got_ == NULL || strcmp(got_, want_) != 0) {                                                         \
            FAIL("%s: expected \"%.200s\", got \"%.200s\"", #expression, want_, got_ == NULL ? "(null)" : got_); \
        }                                                                                                       \
    } while (0)

#define CHECK_TYPE(value, expected)                                                                  \
    do {                                                                                             \
        AT(#value " has type " #expected);                                                           \
        if ((value)->type != (expected)) {                                                           \
            FAIL("%s: expected type %s, got %s", #value, PMIx_Data_type_string(expected),            \
                 PMIx_Data_type_string((value)->type));                                              \
        }                                                                                            \
    } while (0)

/* A process of the caller's own job. PMIX_RANK_WILDCARD names them all. */
MAYBE_UNUSED static pmix_proc_t peer(pmix_rank_t rank)
{
    pmix_proc_t proc;
    PMIX_LOAD_PROCID(&proc, me.nspace, rank);
    return proc;
}

MAYBE_UNUSED static bool same_proc(const pmix_proc_t *a, const pmix_proc_t *b)
{
    return a->rank == b->rank && strncmp(a->nspace, b->nspace, PMIX_MAX_NSLEN) == 0;
}

/* A number in the job information, whatever integer type it has. */
MAYBE_UNUSED static long long number_in(const pmix_value_t *value)
{
    switch (value->type) {
    case PMIX_BOOL: return value->data.flag;
    case PMIX_INT: return value->data.integer;
    case PMIX_INT8: return value->data.int8;
    case PMIX_INT16: return value->data.int16;
    case PMIX_INT32: return value->data.int32;
    case PMIX_INT64: return value->data.int64;
    case PMIX_UINT: return value->data.uint;
    case PMIX_UINT8: return value->data.uint8;
    case PMIX_UINT16: return value->data.uint16;
    case PMIX_UINT32: return value->data.uint32;
    case PMIX_UINT64: return (long long)value->data.uint64;
    case PMIX_SIZE: return (long long)value->data.size;
    case PMIX_PID: return value->data.pid;
    case PMIX_PROC_RANK: return value->data.rank;
    case PMIX_STATUS: return value->data.status;
    default: FAIL("expected a number, got a value of type %s", PMIx_Data_type_string(value->type));
    }
}

MAYBE_UNUSED static long long number_of(const pmix_proc_t *proc, const char *key)
{
    pmix_value_t *value = NULL;
    long long number;

    check_what = key;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("get of %s for rank %u: %s (%d)", key, (unsigned)proc->rank, PMIx_Error_string(status), status);
    }
    number = number_in(value);
    PMIX_VALUE_RELEASE(value);
    return number;
}

/* The caller frees the text. */
MAYBE_UNUSED static char *text_of(const pmix_proc_t *proc, const char *key)
{
    pmix_value_t *value = NULL;
    char *text;

    check_what = key;
    pmix_status_t status = PMIx_Get(proc, key, NULL, 0, &value);
    if (status != PMIX_SUCCESS) {
        FAIL("get of %s for rank %u: %s (%d)", key, (unsigned)proc->rank, PMIx_Error_string(status), status);
    }
    if (value->type != PMIX_STRING || value->data.string == NULL) {
        FAIL("get of %s for rank %u: expected a string, got %s", key, (unsigned)proc->rank,
             PMIx_Data_type_string(value->type));
    }
    text = strdup(value->data.string);
    PMIX_VALUE_RELEASE(value);
    return text;
}

/* Returns a key of a rank that may be between PMIx_Finalize and the next
 * PMIx_Init. A get may then fail or time out, so this repeats it until it
 * succeeds. */
MAYBE_UNUSED static long long number_at_last(pmix_rank_t rank, const char *key)
{
    pmix_proc_t proc = peer(rank);
    pmix_value_t *value = NULL;
    pmix_info_t patience;
    int seconds = 1;
    long long number;

    check_what = key;
    PMIX_INFO_LOAD(&patience, PMIX_TIMEOUT, &seconds, PMIX_INT);
    while (PMIx_Get(&proc, key, &patience, 1, &value) != PMIX_SUCCESS) {
        /* The program's deadline limits this loop. */
    }
    number = number_in(value);
    PMIX_VALUE_RELEASE(value);
    return number;
}

/* For programs that call PMIx_Init themselves, or never. */
MAYBE_UNUSED static void start_deadline(void)
{
    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    me.rank = PMIX_RANK_UNDEF;
}

MAYBE_UNUSED static void start(void)
{
    pmix_proc_t all;

    start_deadline();
    CHECK_OK(PMIx_Init(&me, NULL, 0));
    all = peer(PMIX_RANK_WILDCARD);
    job_size = (uint32_t)number_of(&all, PMIX_JOB_SIZE);
}

/* Returns whether a process is on the node of this one. */
MAYBE_UNUSED static bool is_here(const pmix_proc_t *proc)
{
    char *host = text_of(proc, PMIX_HOSTNAME), *own = text_of(&me, PMIX_HOSTNAME);
    bool same = strcmp(host, own) == 0;

    free(host);
    free(own);
    return same;
}

/* Returns the number of a process's node. libpmix 4.2 searches for that of
 * another node where it never puts it, unless it has to search among the facts
 * of the process. */
MAYBE_UNUSED static long long node_of(const pmix_proc_t *proc)
{
    pmix_value_t *value = NULL;
    pmix_info_t directive;
    bool yes = true;
    long long number;

    if (is_here(proc)) {
        return number_of(proc, PMIX_NODEID);
    }
    PMIX_INFO_LOAD(&directive, PMIX_JOB_INFO, &yes, PMIX_BOOL);
    if (PMIx_Get(proc, PMIX_NODEID, NULL, 0, &value) != PMIX_SUCCESS) {
        CHECK_OK(PMIx_Get(proc, PMIX_NODEID, &directive, 1, &value));
    }
    number = number_in(value);
    PMIX_VALUE_RELEASE(value);
    return number;
}

/* Returns how many processes of a job are on the node of another process. */
MAYBE_UNUSED static uint32_t count_beside(const pmix_proc_t *proc, const pmix_nspace_t nspace, uint32_t size)
{
    char *host = text_of(proc, PMIX_HOSTNAME), *other;
    uint32_t count = 0;
    pmix_proc_t one;

    for (pmix_rank_t rank = 0; rank < size; rank++) {
        PMIX_LOAD_PROCID(&one, nspace, rank);
        other = text_of(&one, PMIX_HOSTNAME);
        count += strcmp(host, other) == 0;
        free(other);
    }
    free(host);
    return count;
}

/* Fails if the job has too few ranks for the test to be meaningful. */
MAYBE_UNUSED static void need_ranks(uint32_t ranks)
{
    if (job_size < ranks) {
        FAIL("expected a job of at least %u ranks, got %u", ranks, job_size);
    }
}

MAYBE_UNUSED static int finish(void)
{
    CHECK_OK(PMIx_Finalize(NULL, 0));
    return 0;
}

/* For runs whose exit code is up to the launcher (=> any): rank 0 prints
 * that the checks have passed. */
MAYBE_UNUSED static void passed(void)
{
    if (me.rank == 0) {
        puts("passed");
        fflush(stdout);
    }
}

/* A barrier over the whole job, without data. */
MAYBE_UNUSED static void fence(void)
{
    pmix_proc_t all = peer(PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Fence(&all, 1, NULL, 0));
}

/* A barrier over the whole job, after which all committed data is available. */
MAYBE_UNUSED static void fence_data(void)
{
    pmix_proc_t all = peer(PMIX_RANK_WILDCARD);
    pmix_info_t info;
    bool collect = true;

    PMIX_INFO_LOAD(&info, PMIX_COLLECT_DATA, &collect, PMIX_BOOL);
    CHECK_OK(PMIx_Fence(&all, 1, &info, 1));
    PMIX_INFO_DESTRUCT(&info);
}

MAYBE_UNUSED static void put_number(pmix_scope_t scope, const char *key, uint32_t number)
{
    pmix_value_t value;

    value.type = PMIX_UINT32;
    value.data.uint32 = number;
    CHECK_OK(PMIx_Put(scope, key, &value));
}

MAYBE_UNUSED static void put_text(pmix_scope_t scope, const char *key, char *text)
{
    pmix_value_t value;

    value.type = PMIX_STRING;
    value.data.string = text;
    CHECK_OK(PMIx_Put(scope, key, &value));
}

/* State of a set of asynchronous operations. */
struct waiter {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int done;
    pmix_status_t status;
    size_t reference;
};

#define WAITER {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, 0, PMIX_SUCCESS, 0}

MAYBE_UNUSED static void wake(struct waiter *waiter, pmix_status_t status)
{
    pthread_mutex_lock(&waiter->lock);
    if (waiter->status == PMIX_SUCCESS) {
        waiter->status = status;
    }
    waiter->done++;
    pthread_cond_broadcast(&waiter->changed);
    pthread_mutex_unlock(&waiter->lock);
}

/* Waits for this many results; returns the first error among them. */
MAYBE_UNUSED static pmix_status_t wait_for(struct waiter *waiter, int results)
{
    pmix_status_t status;

    pthread_mutex_lock(&waiter->lock);
    while (waiter->done < results) {
        pthread_cond_wait(&waiter->changed, &waiter->lock);
    }
    status = waiter->status;
    pthread_mutex_unlock(&waiter->lock);
    return status;
}

MAYBE_UNUSED static void on_op(pmix_status_t status, void *cbdata)
{
    wake(cbdata, status);
}

MAYBE_UNUSED static void on_registered(pmix_status_t status, size_t reference, void *cbdata)
{
    ((struct waiter *)cbdata)->reference = reference;
    wake(cbdata, status);
}

/* Returns the reference for deregistering the handler. */
MAYBE_UNUSED static size_t handle_events(pmix_status_t *codes, size_t count, pmix_info_t *info, size_t infos,
                                         pmix_notification_fn_t handler)
{
    struct waiter waiter = WAITER;

    PMIx_Register_event_handler(codes, count, info, infos, handler, on_registered, &waiter);
    CHECK_OK(wait_for(&waiter, 1));
    return waiter.reference;
}

MAYBE_UNUSED static void stop_events(size_t reference)
{
    struct waiter waiter = WAITER;

#if PMIX_VERSION_MAJOR >= 4
    CHECK_OK(PMIx_Deregister_event_handler(reference, on_op, &waiter));
#else
    PMIx_Deregister_event_handler(reference, on_op, &waiter);
#endif
    CHECK_OK(wait_for(&waiter, 1));
}

/* The value of a key in an array of infos, or NULL. */
MAYBE_UNUSED static const pmix_value_t *value_among(const pmix_info_t *info, size_t count, const char *key)
{
    for (size_t i = 0; i < count; i++) {
        if (strncmp(info[i].key, key, PMIX_MAX_KEYLEN) == 0) {
            return &info[i].value;
        }
    }
    return NULL;
}

/* Sends an event and waits until the server has accepted it. */
MAYBE_UNUSED static void notify(pmix_status_t code, pmix_data_range_t range, pmix_info_t *info, size_t count)
{
    struct waiter waiter = WAITER;

    AT("PMIx_Notify_event");
    pmix_status_t status = PMIx_Notify_event(code, &me, range, info, count, on_op, &waiter);
    if (status == PMIX_OPERATION_SUCCEEDED) {
        return;
    }
    CHECK_OK(status);
    CHECK_OK(wait_for(&waiter, 1));
}

/* True if the library at run time has at least this version. */
MAYBE_UNUSED static bool library_at_least(int major, int minor, int release)
{
    const char *text = PMIx_Get_version();
    int version[3] = {0, 0, 0};

    while (*text != '\0' && (*text < '0' || *text > '9')) {
        text++;
    }
    if (sscanf(text, "%d.%d.%d", &version[0], &version[1], &version[2]) < 2) {
        FAIL("expected a version in \"%s\"", PMIx_Get_version());
    }
    if (version[0] != major) {
        return version[0] > major;
    }
    return version[1] != minor ? version[1] > minor : version[2] >= release;
}

#endif
