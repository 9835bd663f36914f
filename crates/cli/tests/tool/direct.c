/* A debugger that launches its target, and a daemon for each node of it.
 *
 *   direct pid N STOP PROCESSES PROGRAM [ARGUMENT]
 *
 * STOP is none, init or exec: where the processes wait for the debugger. They
 * are placed by slot, or as MAP in the environment says; with ALLOCATE in the
 * environment, in an allocation that is requested before. The daemons are this
 * program, as `direct daemon`. They find their target, look at its local
 * processes, and release it; they end after the target. In the environment:
 * with COSPAWN, one request spawns both; with HASTY, the debugger releases the
 * target at once, and starts no daemons; with DYING, the daemons die before they
 * attach, and the debugger releases the target itself.
 */
#include "waits.h"

#include <libgen.h>
#include <pmix_tool.h>


/* What this process has heard: the ends of jobs by name, and jobs that wait. */
static struct {
    char nspace[PMIX_MAX_NSLEN + 1];
    long long status;
} ends[16];
static size_t ended, ready, started, launched;
/* The jobs that have started, in this order. */
static char starts[4][PMIX_MAX_NSLEN + 1];

static void on_event(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *status = value_among(info, count, PMIX_JOB_TERM_STATUS);
    const pmix_value_t *name = value_among(info, count, PMIX_NSPACE);

    (void)id;
    (void)results;
    (void)nresults;
    pthread_mutex_lock(&lock);
    if (code == PMIX_ERR_JOB_TERMINATED && ended < 16) {
        PMIX_LOAD_NSPACE(ends[ended].nspace, source->nspace);
        ends[ended].status = status == NULL ? -1 : number_in(status);
        ended++;
    } else if (code == PMIX_READY_FOR_DEBUG) {
        ready++;
    } else if (code == PMIX_EVENT_JOB_START && started < 4) {
        CHECK(name != NULL && name->type == PMIX_STRING);
        PMIX_LOAD_NSPACE(starts[started], name->data.string);
        started++;
    } else if (code == PMIX_LAUNCH_COMPLETE) {
        launched++;
    }
    tell();
    handled(done, cbdata);
}

static void handle(pmix_status_t code)
{
    handle_events(&code, 1, NULL, 0, on_event);
}

/* Waits for the end of a job, and returns its status. */
static long long end_of(const char *nspace)
{
    long long status = -1;
    bool found = false;

    AT("the end of a job");
    pthread_mutex_lock(&lock);
    while (!found) {
        for (size_t n = 0; n < ended; n++) {
            if (strcmp(ends[n].nspace, nspace) == 0) {
                status = ends[n].status;
                found = true;
            }
        }
        if (!found) {
            pthread_cond_wait(&changed, &lock);
        }
    }
    pthread_mutex_unlock(&lock);
    return status;
}

static void wait_ready(void)
{
    WAIT_UNTIL("processes that wait for a debugger", ready > 0);
}

/* Returns the number of processes of a job in a table: of all, or of this node. */
static size_t table(const char *key, const char *nspace)
{
    pmix_query_t query;
    pmix_info_t *results = NULL;
    size_t count = 0;
    pmix_status_t status;
    size_t size;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, key);
    CHECK_OK(status);
    PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
    PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, nspace, PMIX_STRING);
    CHECK_OK(PMIx_Query_info(&query, 1, &results, &count));
    CHECK(count == 1 && results[0].value.type == PMIX_DATA_ARRAY);
    size = results[0].value.data.darray->size;
    PMIX_QUERY_DESTRUCT(&query);
    PMIX_INFO_FREE(results, count);
    return size;
}

static void release(const char *nspace)
{
    pmix_proc_t all;
    pmix_info_t infos[2];
    bool yes = true;

    PMIX_LOAD_PROCID(&all, nspace, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&infos[0], PMIX_EVENT_CUSTOM_RANGE, &all, PMIX_PROC);
    PMIX_INFO_LOAD(&infos[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL));
}

static int as_daemon(void)
{
    pmix_proc_t own;
    pmix_value_t *target = NULL, *host = NULL;
    char nspace[PMIX_MAX_NSLEN + 1];

    if (getenv("DYING") != NULL) {
        return 9;
    }
    CHECK_OK(PMIx_tool_init(&me, NULL, 0));
    PMIX_LOAD_PROCID(&own, me.nspace, PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Get(&own, PMIX_DEBUG_TARGET, NULL, 0, &target));
    CHECK_TYPE(target, PMIX_PROC);
    PMIX_LOAD_NSPACE(nspace, target->data.proc->nspace);
    PMIX_VALUE_RELEASE(target);
    handle(PMIX_ERR_JOB_TERMINATED);
    CHECK_OK(PMIx_Get(&me, PMIX_HOSTNAME, NULL, 0, &host));
    CHECK_TYPE(host, PMIX_STRING);
    printf("daemon %u on %s sees %zu processes\n", (unsigned)me.rank, host->data.string,
           table(PMIX_QUERY_LOCAL_PROC_TABLE, nspace));
    PMIX_VALUE_RELEASE(host);
    fflush(stdout);
    /* The release is for all processes: they may end before another daemon has looked at them. */
    CHECK_OK(PMIx_Fence(&own, 1, NULL, 0));
    release(nspace);
    printf("daemon %u saw the end with %lld\n", (unsigned)me.rank, end_of(nspace));
    fflush(stdout);
    CHECK_OK(PMIx_tool_finalize());
    return 0;
}

/* The two lists of what can be asked for. */
static void check_support(const char *stop)
{
    pmix_query_t query;
    pmix_info_t *results = NULL;
    size_t count = 0;
    pmix_status_t status;
    const pmix_value_t *spawn, *debug;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_SPAWN_SUPPORT);
    PMIX_ARGV_APPEND(status, query.keys, PMIX_QUERY_DEBUG_SUPPORT);
    CHECK_OK(status);
    CHECK_OK(PMIx_Query_info(&query, 1, &results, &count));
    CHECK_NUMBER(count, 2);
    spawn = value_among(results, count, PMIX_QUERY_SPAWN_SUPPORT);
    debug = value_among(results, count, PMIX_QUERY_DEBUG_SUPPORT);
    CHECK(spawn != NULL && spawn->type == PMIX_STRING && debug != NULL && debug->type == PMIX_STRING);
    CHECK(strstr(spawn->data.string, PMIX_MAPBY) != NULL);
    CHECK(stop == NULL || strstr(debug->data.string, stop) != NULL);
    CHECK(strstr(debug->data.string, PMIX_DEBUG_TARGET) != NULL);
    PMIX_QUERY_DESTRUCT(&query);
    PMIX_INFO_FREE(results, count);
}

static void describe(pmix_app_t *app, const char *program, const char *argument, int processes)
{
    pmix_status_t status;

    PMIX_APP_CONSTRUCT(app);
    app->cmd = strdup(program);
    app->maxprocs = processes;
    app->argv = calloc(3, sizeof(char *));
    app->argv[0] = strdup(program);
    app->argv[1] = argument == NULL ? NULL : strdup(argument);
    app->cwd = strdup("/");
    if (getenv("LD_LIBRARY_PATH") != NULL) {
        char text[8192];

        snprintf(text, sizeof(text), "LD_LIBRARY_PATH=%s", getenv("LD_LIBRARY_PATH"));
        PMIX_ARGV_APPEND(status, app->env, text);
        CHECK_OK(status);
    }
    if (getenv("DYING") != NULL) {
        PMIX_ARGV_APPEND(status, app->env, "DYING=1");
        CHECK_OK(status);
    }
}

static void spawn(pmix_info_t *infos, size_t count, const char *program, const char *argument, int processes,
                  pmix_nspace_t nspace)
{
    pmix_app_t app;

    describe(&app, program, argument, processes);
    CHECK_OK(PMIx_Spawn(infos, count, &app, 1, nspace));
    PMIX_APP_DESTRUCT(&app);
}

static const char *own_path(void)
{
    static char path[4096];
    ssize_t length = readlink("/proc/self/exe", path, sizeof(path) - 1);

    CHECK(length > 0);
    path[length] = '\0';
    return path;
}

/* Spawns the target, which stops, and its daemons by one request. Both have
 * names of their own; that of the daemons is told when they start. */
static void cospawn(const char *stop, const char *program, int processes, pmix_nspace_t job, pmix_nspace_t daemons)
{
    pmix_app_t apps[2];
    bool yes = true;

    describe(&apps[0], program, NULL, processes);
    PMIX_INFO_CREATE(apps[0].info, 1);
    apps[0].ninfo = 1;
    PMIX_INFO_LOAD(&apps[0].info[0], stop, &yes, PMIX_BOOL);
    describe(&apps[1], own_path(), "daemon", 1);
    PMIX_INFO_CREATE(apps[1].info, 1);
    apps[1].ninfo = 1;
    PMIX_INFO_LOAD(&apps[1].info[0], PMIX_DEBUGGER_DAEMONS, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Spawn(NULL, 0, apps, 2, job));
    PMIX_APP_DESTRUCT(&apps[0]);
    PMIX_APP_DESTRUCT(&apps[1]);
    AT("the start of both jobs");
    pthread_mutex_lock(&lock);
    while (started < 2) {
        pthread_cond_wait(&changed, &lock);
    }
    CHECK_TEXT(starts[0], job);
    CHECK(strcmp(starts[0], starts[1]) != 0);
    PMIX_LOAD_NSPACE(daemons, starts[1]);
    pthread_mutex_unlock(&lock);
}

/* Requests an allocation for these processes, and returns its name. */
static void allocate(uint64_t processes, char *id, size_t size)
{
    pmix_info_t infos[1];
    pmix_info_t *results = NULL;
    size_t count = 0;
    const pmix_value_t *name;

    PMIX_INFO_LOAD(&infos[0], PMIX_ALLOC_NUM_CPUS, &processes, PMIX_UINT64);
    CHECK_OK(PMIx_Allocation_request(PMIX_ALLOC_NEW, infos, 1, &results, &count));
    name = value_among(results, count, PMIX_ALLOC_ID);
    CHECK(name != NULL && name->type == PMIX_STRING);
    snprintf(id, size, "%s", name->data.string);
    PMIX_INFO_FREE(results, count);
}

int main(int argc, char **argv)
{
    pmix_info_t infos[8];
    size_t count = 0;
    pid_t pid;
    const char *stop = NULL;
    const char *map = getenv("MAP") == NULL ? "slot" : getenv("MAP");
    pmix_nspace_t job, daemons;
    pmix_proc_t target;
    bool yes = true;
    int processes;

    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    if (argc == 2 && strcmp(argv[1], "daemon") == 0) {
        return as_daemon();
    }
    CHECK(argc >= 6 && strcmp(argv[1], "pid") == 0);
    pid = atoi(argv[2]);
    if (strcmp(argv[3], "init") == 0) {
        stop = PMIX_DEBUG_STOP_IN_INIT;
    } else if (strcmp(argv[3], "exec") == 0) {
        stop = PMIX_DEBUG_STOP_ON_EXEC;
    }
    processes = atoi(argv[4]);
    PMIX_INFO_LOAD(&infos[0], PMIX_SERVER_PIDINFO, &pid, PMIX_PID);
    CHECK_OK(PMIx_tool_init(&me, infos, 1));
    check_support(stop);
    handle(PMIX_ERR_JOB_TERMINATED);
    handle(PMIX_READY_FOR_DEBUG);
    handle(PMIX_EVENT_JOB_START);
    handle(PMIX_LAUNCH_COMPLETE);
    if (getenv("COSPAWN") != NULL) {
        cospawn(stop, argv[5], processes, job, daemons);
    } else {
        PMIX_INFO_LOAD(&infos[count++], PMIX_MAPBY, map, PMIX_STRING);
        PMIX_INFO_LOAD(&infos[count++], PMIX_FWD_STDOUT, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&infos[count++], PMIX_FWD_STDERR, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&infos[count++], PMIX_NOTIFY_COMPLETION, &yes, PMIX_BOOL);
        if (stop != NULL) {
            PMIX_INFO_LOAD(&infos[count++], stop, &yes, PMIX_BOOL);
        }
        if (getenv("ALLOCATE") != NULL) {
            char id[64];

            allocate(processes, id, sizeof(id));
            printf("has allocation %s\n", id);
            PMIX_INFO_LOAD(&infos[count++], PMIX_ALLOC_ID, id, PMIX_STRING);
        }
        spawn(infos, count, argv[5], argc > 6 ? argv[6] : NULL, processes, job);
        if (getenv("HASTY") != NULL) {
            release(job);
            printf("job ended with %lld\n", end_of(job));
            CHECK_OK(PMIx_tool_finalize());
            return 0;
        }
        if (stop != NULL) {
            wait_ready();
        }
        printf("job of %zu\n", table(PMIX_QUERY_PROC_TABLE, job));
        fflush(stdout);
        PMIX_LOAD_PROCID(&target, job, PMIX_RANK_WILDCARD);
        count = 0;
        PMIX_INFO_LOAD(&infos[count++], PMIX_MAPBY, "ppr:1:node", PMIX_STRING);
        PMIX_INFO_LOAD(&infos[count++], PMIX_DEBUGGER_DAEMONS, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&infos[count++], PMIX_DEBUG_TARGET, &target, PMIX_PROC);
        PMIX_INFO_LOAD(&infos[count++], PMIX_NOTIFY_COMPLETION, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&infos[count++], PMIX_FWD_STDOUT, &yes, PMIX_BOOL);
        PMIX_INFO_LOAD(&infos[count++], PMIX_FWD_STDERR, &yes, PMIX_BOOL);
        spawn(infos, count, own_path(), "daemon", 1, daemons);
    }
    if (getenv("DYING") != NULL) {
        printf("daemons ended with %lld\n", end_of(daemons));
        release(job);
    }
    printf("job ended with %lld\n", end_of(job));
    printf("daemons ended with %lld\n", end_of(daemons));
    CHECK_NUMBER(started, 2);
    CHECK_NUMBER(launched, 2);
    /* Daemons of the same request may release the processes before all of them wait. */
    if (getenv("COSPAWN") == NULL) {
        CHECK_NUMBER(ready, stop == NULL ? 0 : 1);
    }
    CHECK_OK(PMIx_tool_finalize());
    return 0;
}
