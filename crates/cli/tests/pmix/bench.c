/* The client of `cargo xtask bench pmix`. It measures; the other programs of
 * this directory check. The first argument selects what it does:
 *
 *   modex BYTES    init, put, commit, fence with data, get of every peer, finalize
 *   fence COUNT    COUNT fences without data; rank 0 prints the mean
 *   init           every rank prints the time before and after PMIx_Init
 *   gets COUNT     every rank reads COUNT keys of its peers, one peer after the
 *                  other; rank 0 prints the mean. The library asks the server
 *                  once for each peer and caches its other keys, so with COUNT
 *                  below the number of ranks each get is a request.
 *   misses COUNT   gets of absent keys, each of them a request
 *   idle           init, fence, wait: rank 0 for EOF on its standard input or
 *                  for SIGTERM or SIGUSR1, the others for rank 0; finalize
 *   spawns COUNT   rank 0 spawns one process COUNT times, one after another; it
 *                  inits and finalizes, and an event reports its exit
 *   child          the role of a process that `spawns` spawns
 *
 * All times are of CLOCK_MONOTONIC, in nanoseconds unless stated otherwise.
 */
#include "spawn.h"

#include <fcntl.h>
#include <poll.h>

static uint64_t now(void)
{
    struct timespec time;

    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * UINT64_C(1000000000) + (uint64_t)time.tv_nsec;
}

static void print_mean(const char *what, uint64_t began, unsigned long count)
{
    if (me.rank == 0) {
        printf("%s ranks=%u count=%lu mean_us=%.3f\n", what, job_size, count,
               (double)(now() - began) / 1000.0 / (double)(count == 0 ? 1 : count));
        fflush(stdout);
    }
}

static int modex(size_t bytes)
{
    pmix_value_t value, *got;
    char *data;

    start();
    data = malloc(bytes + 1);
    /* Different for every rank, and incompressible. */
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (char)((i * 2654435761U >> 7) + me.rank);
    }
    value.type = PMIX_BYTE_OBJECT;
    value.data.bo.bytes = data;
    value.data.bo.size = bytes;
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, "bench-modex", &value));
    CHECK_OK(PMIx_Commit());
    fence_data();
    for (pmix_rank_t i = 0; i < job_size; i++) {
        pmix_proc_t other = peer((me.rank + i) % job_size);

        CHECK_OK(PMIx_Get(&other, "bench-modex", NULL, 0, &got));
        CHECK_NUMBER(got->data.bo.size, bytes);
        CHECK(bytes == 0 || got->data.bo.bytes[bytes - 1] == (char)(((bytes - 1) * 2654435761U >> 7) + other.rank));
        PMIX_VALUE_RELEASE(got);
    }
    free(data);
    return finish();
}

static int fences(unsigned long count)
{
    uint64_t began;

    start();
    fence();
    began = now();
    for (unsigned long i = 0; i < count; i++) {
        alarm(DEADLINE);
        fence();
    }
    print_mean("fence", began, count);
    return finish();
}

static int init(void)
{
    uint64_t before = now(), after;

    start_deadline();
    CHECK_OK(PMIx_Init(&me, NULL, 0));
    after = now();
    printf("init rank=%u before=%llu after=%llu\n", me.rank, (unsigned long long)before, (unsigned long long)after);
    fflush(stdout);
    return finish();
}

static int gets(unsigned long count)
{
    unsigned long per_peer;
    uint64_t began;
    char key[32];

    start();
    need_ranks(2);
    per_peer = (count + job_size - 2) / (job_size - 1);
    for (unsigned long i = 0; i < per_peer; i++) {
        snprintf(key, sizeof(key), "bench-%lu", i);
        put_number(PMIX_GLOBAL, key, (uint32_t)i);
    }
    CHECK_OK(PMIx_Commit());
    fence();
    began = now();
    for (unsigned long i = 0; i < count; i++) {
        pmix_proc_t other = peer((pmix_rank_t)((me.rank + 1 + i % (job_size - 1)) % job_size));

        snprintf(key, sizeof(key), "bench-%lu", i / (job_size - 1));
        CHECK_NUMBER(number_of(&other, key), i / (job_size - 1));
    }
    print_mean("gets", began, count);
    alarm(DEADLINE);
    fence();
    return finish();
}

static int misses(unsigned long count)
{
    pmix_info_t immediate;
    uint64_t began;
    bool yes = true;

    start();
    put_number(PMIX_GLOBAL, "bench-here", me.rank);
    CHECK_OK(PMIx_Commit());
    fence_data();
    PMIX_INFO_LOAD(&immediate, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    began = now();
    for (unsigned long i = 0; i < count; i++) {
        pmix_proc_t other = peer((pmix_rank_t)((me.rank + 1 + i) % job_size));
        pmix_value_t *value = NULL;
        char key[32];

        snprintf(key, sizeof(key), "absent-%lu", i);
        CHECK_ERROR(PMIx_Get(&other, key, &immediate, 1, &value));
    }
    print_mean("misses", began, count);
    alarm(DEADLINE);
    fence();
    return finish();
}

static int wake_up[2];

static void on_wish_to_end(int signal_number)
{
    ssize_t written = write(wake_up[1], "!", 1);

    (void)signal_number;
    (void)written;
}

static int idle(void)
{
    if (pipe2(wake_up, O_CLOEXEC | O_NONBLOCK) != 0) {
        return 2;
    }
    signal(SIGTERM, on_wish_to_end);
    signal(SIGUSR1, on_wish_to_end);
    start();
    fence();
    alarm(0);
    if (me.rank == 0) {
        struct pollfd ends[2] = {{STDIN_FILENO, POLLIN, 0}, {wake_up[0], POLLIN, 0}};
        char rest[4096];

        printf("idle ranks=%u\n", job_size);
        fflush(stdout);
        for (;;) {
            if (poll(ends, 2, -1) < 0 && errno != EINTR) {
                return 2;
            }
            if (ends[1].revents != 0) {
                break;
            }
            if (ends[0].revents != 0 && read(STDIN_FILENO, rest, sizeof(rest)) <= 0) {
                break;
            }
        }
    }
    fence();
    return finish();
}

/* The most recently ended jobs: a job may end before its spawn call returns,
 * and its end may be reported more than once. */
#define LAST_ENDS 64

static pthread_mutex_t last_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t last_changed = PTHREAD_COND_INITIALIZER;
static pmix_nspace_t last_ends[LAST_ENDS];
static unsigned last_next;

static void on_end(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                   pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *affected = value_among(info, count, PMIX_EVENT_AFFECTED_PROC);
    bool named = affected != NULL && affected->type == PMIX_PROC;

    (void)id;
    (void)code;
    (void)results;
    (void)nresults;
    pthread_mutex_lock(&last_lock);
    PMIX_LOAD_NSPACE(last_ends[last_next], named ? affected->data.proc->nspace : source->nspace);
    last_next = (last_next + 1) % LAST_ENDS;
    pthread_cond_broadcast(&last_changed);
    pthread_mutex_unlock(&last_lock);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

static void wait_end(const char *nspace)
{
    bool found = false;

    AT("wait for the end of a spawned job");
    pthread_mutex_lock(&last_lock);
    while (!found) {
        for (unsigned i = 0; i < LAST_ENDS && !found; i++) {
            found = strncmp(last_ends[i], nspace, PMIX_MAX_NSLEN) == 0;
        }
        if (!found) {
            pthread_cond_wait(&last_changed, &last_lock);
        }
    }
    pthread_mutex_unlock(&last_lock);
}

static int spawns(unsigned long count)
{
    pmix_status_t code = PMIX_EVENT_JOB_END;
    pmix_nspace_t nspace;
    pmix_app_t app;
    uint64_t began;

    start();
    if (me.rank == 0) {
        handle_events(&code, 1, NULL, 0, on_end);
        self_app(&app, 1, "child", NULL);
        began = now();
        for (unsigned long i = 0; i < count; i++) {
            alarm(DEADLINE);
            CHECK_OK(PMIx_Spawn(NULL, 0, &app, 1, nspace));
            wait_end(nspace);
        }
        print_mean("spawns", began, count);
    }
    alarm(0);
    fence();
    return finish();
}

int main(int argc, char **argv)
{
    unsigned long count = argc > 2 ? strtoul(argv[2], NULL, 10) : 0;
    const char *mode = argc > 1 ? argv[1] : "";

    if (strcmp(mode, "modex") == 0) {
        return modex(count);
    }
    if (strcmp(mode, "fence") == 0) {
        return fences(count);
    }
    if (strcmp(mode, "init") == 0) {
        return init();
    }
    if (strcmp(mode, "gets") == 0) {
        return gets(count);
    }
    if (strcmp(mode, "misses") == 0) {
        return misses(count);
    }
    if (strcmp(mode, "idle") == 0) {
        return idle();
    }
    if (strcmp(mode, "spawns") == 0) {
        return spawns(count);
    }
    if (strcmp(mode, "child") == 0) {
        start();
        return finish();
    }
    fprintf(stderr, "usage: bench modex BYTES | fence N | init | gets N | misses N | idle | spawns N\n");
    return 2;
}
