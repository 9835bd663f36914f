/* A debugger that starts a launcher, and controls its job.
 *
 *   indirect WHAT LAUNCHER [ARGUMENT...]
 *
 * WHAT is init or exec: where the ranks wait; print: they do not wait, and the
 * launcher prints their output; log: the same, and it prints when the job starts
 * and ends; leave: the tool ends before it releases the
 * launcher; die: it ends while the job runs; nohup: the same, and the job is to
 * go on; require: with a required directive that nobody knows.
 *
 *   indirect release FILE
 *
 * It connects to the launcher whose address is in the file, and releases it.
 *
 *   indirect system NAME
 *
 * It connects to the system server, and to no other.
 */
#include "waits.h"

#include <pmix_tool.h>

static size_t prepared, ready, started, launched, ended, gone;
static long long end_status = -1;
static char job[PMIX_MAX_NSLEN + 1];

static void on_event(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *status = value_among(info, count, PMIX_JOB_TERM_STATUS);
    const pmix_value_t *name = value_among(info, count, PMIX_NSPACE);

    (void)id;
    (void)results;
    (void)nresults;
    pthread_mutex_lock(&lock);
    if (name != NULL && job[0] == '\0') {
        PMIX_LOAD_NSPACE(job, name->data.string);
    }
    /* The library itself says that the launcher has ended. */
    if (code == PMIX_ERR_JOB_TERMINATED && status != NULL && PMIX_CHECK_NSPACE(source->nspace, job)) {
        ended++;
        end_status = number_in(status);
    } else if (code == PMIX_LAUNCHER_READY) {
        prepared++;
    } else if (code == PMIX_READY_FOR_DEBUG) {
        ready++;
    } else if (code == PMIX_EVENT_JOB_START) {
        started++;
    } else if (code == PMIX_LAUNCH_COMPLETE) {
        launched++;
    } else if (code == PMIX_ERR_LOST_CONNECTION) {
        gone++;
    }
    tell();
    handled(done, cbdata);
}

static void handle(pmix_status_t code)
{
    handle_events(&code, 1, NULL, 0, on_event);
}

/* Waits for an event, or for the end of the launcher. */
static void await(const size_t *count)
{
    pthread_mutex_lock(&lock);
    while (*count == 0 && gone == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
}

/* Starts the launcher, and returns its namespace. */
static void launch(const char *what, char **words, const char *address, char *launcher)
{
    const char *stop = strcmp(what, "init") == 0 ? PMIX_DEBUG_STOP_IN_INIT : PMIX_DEBUG_STOP_ON_EXEC;
    pmix_info_t directives[5], infos[1];
    pmix_data_array_t array;
    pmix_app_t app;
    size_t count = 0;
    pmix_status_t status;

    PMIX_INFO_LOAD(&directives[count++], PMIX_NOTIFY_JOB_EVENTS, NULL, PMIX_BOOL);
    if (strcmp(what, "init") == 0 || strcmp(what, "exec") == 0) {
        PMIX_INFO_LOAD(&directives[count++], stop, NULL, PMIX_BOOL);
    }
    if (strcmp(what, "log") == 0) {
        PMIX_INFO_LOAD(&directives[count], PMIX_LOG_JOB_EVENTS, NULL, PMIX_BOOL);
        PMIX_INFO_REQUIRED(&directives[count++]);
    } else if (strcmp(what, "print") != 0) {
        PMIX_INFO_LOAD(&directives[count++], PMIX_FWD_STDOUT, NULL, PMIX_BOOL);
        PMIX_INFO_LOAD(&directives[count++], PMIX_FWD_STDERR, NULL, PMIX_BOOL);
    }
    if (strcmp(what, "require") == 0) {
        PMIX_INFO_LOAD(&directives[count], "pmix.nobody.knows", NULL, PMIX_BOOL);
        PMIX_INFO_REQUIRED(&directives[count++]);
    }
    if (strcmp(what, "nohup") == 0) {
        PMIX_INFO_LOAD(&directives[count++], PMIX_NOHUP, NULL, PMIX_BOOL);
    }
    array.type = PMIX_INFO;
    array.size = count;
    array.array = directives;
    PMIX_INFO_LOAD(&infos[0], PMIX_LAUNCH_DIRECTIVES, &array, PMIX_DATA_ARRAY);
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(words[0]);
    app.maxprocs = 1;
    for (; *words != NULL; words++) {
        PMIX_ARGV_APPEND(status, app.argv, *words);
        CHECK_NUMBER(status, PMIX_SUCCESS);
    }
    PMIX_SETENV(status, PMIX_LAUNCHER_RNDZ_URI, address, &app.env);
    CHECK_NUMBER(status, PMIX_SUCCESS);
    CHECK_OK(PMIx_Spawn(infos, 1, &app, 1, launcher));
}

/* Releases a launcher that waits for a tool. */
static int release(const char *file)
{
    char address[4096] = "";
    FILE *stream = fopen(file, "r");
    pmix_info_t infos[1];
    pmix_proc_t me;

    CHECK(stream != NULL && fgets(address, sizeof(address), stream) != NULL);
    fclose(stream);
    address[strcspn(address, "\n")] = '\0';
    PMIX_INFO_LOAD(&infos[0], PMIX_SERVER_URI, address, PMIX_STRING);
    CHECK_OK(PMIx_tool_init(&me, infos, 1));
    CHECK_OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_SESSION, NULL, 0, NULL, NULL));
    CHECK_OK(PMIx_tool_finalize());
    printf("released\n");
    return 0;
}

/* Connects to the system server under this name. */
static int connect_to_system(const char *name)
{
    pmix_info_t infos[3];
    pmix_rank_t rank = 0;
    pmix_proc_t me;

    PMIX_INFO_LOAD(&infos[0], PMIX_CONNECT_TO_SYSTEM, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_TOOL_NSPACE, name, PMIX_STRING);
    PMIX_INFO_LOAD(&infos[2], PMIX_TOOL_RANK, &rank, PMIX_PROC_RANK);
    if (PMIx_tool_init(&me, infos, 3) != PMIX_SUCCESS) {
        printf("no system server\n");
        return 3;
    }
    CHECK_OK(PMIx_tool_finalize());
    printf("connected as %s\n", me.nspace);
    return 0;
}

int main(int argc, char **argv)
{
    pmix_info_t infos[3];
    pmix_proc_t me, server;
    pmix_value_t *value;
    char launcher[PMIX_MAX_NSLEN + 1];
    const char *what = argc > 2 ? argv[1] : "";
    int patience = 20;

    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    CHECK(argc > 2);
    if (strcmp(what, "release") == 0) {
        return release(argv[2]);
    }
    if (strcmp(what, "system") == 0) {
        return connect_to_system(argv[2]);
    }
    PMIX_INFO_LOAD(&infos[0], PMIX_TOOL_DO_NOT_CONNECT, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_LAUNCHER, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[2], PMIX_IOF_LOCAL_OUTPUT, NULL, PMIX_BOOL);
    CHECK_OK(PMIx_tool_init(&me, infos, 3));
    CHECK_OK(PMIx_Get(&me, PMIX_MYSERVER_URI, NULL, 0, &value));
    handle(PMIX_ERR_LOST_CONNECTION);
    launch(what, argv + 2, value->data.string, launcher);

    PMIX_LOAD_PROCID(&server, launcher, 0);
    PMIX_INFO_LOAD(&infos[0], PMIX_WAIT_FOR_CONNECTION, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_TIMEOUT, &patience, PMIX_INT);
    CHECK_OK(PMIx_tool_set_server(&server, infos, 2));
    printf("the launcher is connected\n");
    fflush(stdout);
    if (strcmp(what, "leave") == 0) {
        _exit(7);
    }
    handle(PMIX_LAUNCHER_READY);
    handle(PMIX_EVENT_JOB_START);
    handle(PMIX_LAUNCH_COMPLETE);
    handle(PMIX_READY_FOR_DEBUG);
    handle(PMIX_ERR_JOB_TERMINATED);
    await(&prepared);
    CHECK_NUMBER(prepared, 1);
    PMIX_INFO_LOAD(&infos[0], PMIX_EVENT_NON_DEFAULT, NULL, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_EVENT_CUSTOM_RANGE, &server, PMIX_PROC);
    CHECK_OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL));
    await(&started);
    if (gone == 0) {
        await(&launched);
        printf("the job %s is launched\n", strncmp(job, "rally-", 6) == 0 ? "of rally" : job);
        fflush(stdout);
        if (strcmp(what, "die") == 0 || strcmp(what, "nohup") == 0) {
            /* The test kills it when it has seen the ranks. */
            for (;;) {
                pause();
            }
        }
        if (strcmp(what, "init") == 0 || strcmp(what, "exec") == 0) {
            await(&ready);
            printf("it waits for the debugger\n");
            PMIX_LOAD_PROCID(&server, job, PMIX_RANK_WILDCARD);
            PMIX_INFO_LOAD(&infos[1], PMIX_EVENT_CUSTOM_RANGE, &server, PMIX_PROC);
            CHECK_OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL));
        }
        await(&ended);
        printf("it has ended with %lld\n", end_status);
    }
    pthread_mutex_lock(&lock);
    while (gone == 0) {
        pthread_cond_wait(&changed, &lock);
    }
    pthread_mutex_unlock(&lock);
    printf("the launcher is gone; ready %zu, started %zu, launched %zu, ended %zu\n", ready, started, launched, ended);
    fflush(stdout);
    _exit(0);
}
