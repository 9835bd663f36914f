/* A tool that attaches to a running job. Its arguments are orders, in this
 * sequence: how the server is found, the tool's own name, and what it does.
 *
 *   pid N | nspace NAME | uri URI | any    how the server is found
 *   as NAME                                its own namespace
 *   table | pull | take | end | ready | signal N | kill | release | daemons | quiet | crash | unknown
 */
#include "waits.h"

#include <pmix_tool.h>

static char job[PMIX_MAX_NSLEN + 1];
static bool has_ended, is_ready;

static void on_end(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                   pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *status = value_among(info, count, PMIX_JOB_TERM_STATUS);

    (void)id;
    (void)code;
    (void)results;
    (void)nresults;
    CHECK_TEXT(source->nspace, job);
    CHECK(status != NULL);
    printf("job ended with %lld\n", number_in(status));
    pthread_mutex_lock(&lock);
    has_ended = true;
    tell();
    handled(done, cbdata);
}

static void on_ready(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                     pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *name = value_among(info, count, PMIX_NSPACE);

    (void)id;
    (void)code;
    (void)source;
    (void)results;
    (void)nresults;
    CHECK(name != NULL && name->type == PMIX_STRING);
    CHECK_TEXT(name->data.string, job);
    pthread_mutex_lock(&lock);
    is_ready = true;
    tell();
    handled(done, cbdata);
}

static void on_output(size_t handler, pmix_iof_channel_t channel, pmix_proc_t *source, pmix_byte_object_t *payload,
                      pmix_info_t info[], size_t count)
{
    (void)handler;
    (void)info;
    (void)count;
    if (payload != NULL && payload->bytes != NULL && payload->size > 0) {
        printf("%s of %u: %.*s", channel == PMIX_FWD_STDOUT_CHANNEL ? "stdout" : "stderr", (unsigned)source->rank,
               (int)payload->size, payload->bytes);
        fflush(stdout);
    }
}

/* Asks for a key, about the job if there is one. */
static pmix_status_t ask(const char *key, pmix_info_t **results, size_t *count)
{
    pmix_query_t query;
    pmix_status_t status;

    PMIX_QUERY_CONSTRUCT(&query);
    PMIX_ARGV_APPEND(status, query.keys, key);
    if (job[0] != '\0') {
        PMIX_QUERY_QUALIFIERS_CREATE(&query, 1);
        PMIX_INFO_LOAD(&query.qualifiers[0], PMIX_NSPACE, job, PMIX_STRING);
    }
    status = PMIx_Query_info(&query, 1, results, count);
    PMIX_QUERY_DESTRUCT(&query);
    return status;
}

static void find_job(void)
{
    pmix_info_t *results = NULL;
    size_t count = 0;
    const pmix_value_t *names;

    CHECK_OK(ask(PMIX_QUERY_NAMESPACES, &results, &count));
    names = value_among(results, count, PMIX_QUERY_NAMESPACES);
    CHECK(names != NULL && names->type == PMIX_STRING);
    printf("jobs: %s\n", names->data.string);
    snprintf(job, sizeof(job), "%.*s", (int)strcspn(names->data.string, ","), names->data.string);
    PMIX_INFO_FREE(results, count);
}

static void show_table(void)
{
    pmix_info_t *results = NULL;
    size_t count = 0;
    const pmix_data_array_t *table;
    const pmix_proc_info_t *rows;
    char host[256];

    CHECK(gethostname(host, sizeof(host)) == 0);
    CHECK_OK(ask(PMIX_QUERY_PROC_TABLE, &results, &count));
    CHECK(count == 1 && results[0].value.type == PMIX_DATA_ARRAY);
    table = results[0].value.data.darray;
    CHECK(table->type == PMIX_PROC_INFO);
    rows = table->array;
    for (size_t row = 0; row < table->size; row++) {
        printf("rank %u on %s runs %s\n", (unsigned)rows[row].proc.rank, rows[row].hostname,
               rows[row].executable_name);
        CHECK_TEXT(rows[row].proc.nspace, job);
        CHECK(rows[row].pid > 0);
        /* Of another host, a pid says nothing here. */
        CHECK(strcmp(rows[row].hostname, host) != 0 || kill(rows[row].pid, 0) == 0);
    }
    PMIX_INFO_FREE(results, count);
}

static pmix_status_t control(const char *key, void *value, pmix_data_type_t type)
{
    pmix_proc_t all;
    pmix_info_t order;

    PMIX_LOAD_PROCID(&all, job, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&order, key, value, type);
    return PMIx_Job_control(&all, 1, &order, 1, NULL, NULL);
}

static void release(void)
{
    pmix_proc_t all;
    pmix_info_t infos[2];
    bool yes = true;

    PMIX_LOAD_PROCID(&all, job, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&infos[0], PMIX_EVENT_CUSTOM_RANGE, &all, PMIX_PROC);
    PMIX_INFO_LOAD(&infos[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, infos, 2, NULL, NULL));
}

/* Starts daemons that know nothing of their target, and do not end with it. */
static void attach_daemons(void)
{
    pmix_proc_t target;
    pmix_info_t infos[2];
    pmix_app_t app;
    pmix_nspace_t daemons;
    bool yes = true;

    PMIX_LOAD_PROCID(&target, job, PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&infos[0], PMIX_DEBUGGER_DAEMONS, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[1], PMIX_DEBUG_TARGET, &target, PMIX_PROC);
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("sleep");
    app.argv = calloc(3, sizeof(char *));
    app.argv[0] = strdup("sleep");
    app.argv[1] = strdup("1000");
    app.cwd = strdup("/");
    app.maxprocs = 1;
    CHECK_OK(PMIx_Spawn(infos, 2, &app, 1, daemons));
    PMIX_APP_DESTRUCT(&app);
    printf("daemons run\n");
}

static void act(const char *order, const char *argument)
{
    bool yes = true;

    if (strcmp(order, "table") == 0) {
        show_table();
    } else if (strcmp(order, "pull") == 0 || strcmp(order, "take") == 0) {
        pmix_proc_t all;
        pmix_info_t redirect;

        PMIX_LOAD_PROCID(&all, job, PMIX_RANK_WILDCARD);
        PMIX_INFO_LOAD(&redirect, PMIX_IOF_REDIRECT, &yes, PMIX_BOOL);
        /* A handle, or a success of the libraries that return none. */
        CHECK(PMIx_IOF_pull(&all, 1, &redirect, strcmp(order, "take") == 0,
                            PMIX_FWD_STDOUT_CHANNEL | PMIX_FWD_STDERR_CHANNEL, on_output, NULL, NULL) >= 0);
        printf("pulls\n");
    } else if (strcmp(order, "end") == 0) {
        pmix_status_t code = PMIX_ERR_JOB_TERMINATED;

        handle_events(&code, 1, NULL, 0, on_end);
        printf("waits\n");
        fflush(stdout);
        WAIT_UNTIL("the end of the job", has_ended);
    } else if (strcmp(order, "ready") == 0) {
        pmix_status_t code = PMIX_READY_FOR_DEBUG;

        handle_events(&code, 1, NULL, 0, on_ready);
        WAIT_UNTIL("processes that wait for a debugger", is_ready);
        printf("all wait\n");
    } else if (strcmp(order, "signal") == 0) {
        int number = atoi(argument);

        CHECK_OK(control(PMIX_JOB_CTRL_SIGNAL, &number, PMIX_INT));
    } else if (strcmp(order, "kill") == 0) {
        CHECK_OK(control(PMIX_JOB_CTRL_KILL, &yes, PMIX_BOOL));
    } else if (strcmp(order, "unknown") == 0) {
        snprintf(job, sizeof(job), "nobody");
        CHECK_STATUS(control(PMIX_JOB_CTRL_KILL, &yes, PMIX_BOOL), PMIX_ERR_NOT_FOUND);
    } else if (strcmp(order, "release") == 0) {
        release();
    } else if (strcmp(order, "daemons") == 0) {
        attach_daemons();
    } else if (strcmp(order, "quiet") == 0) {
        printf("stays\n");
        fflush(stdout);
        pause();
    } else if (strcmp(order, "crash") == 0) {
        abort();
    } else {
        FAIL("no order: %s", order);
    }
    fflush(stdout);
}

int main(int argc, char **argv)
{
    pmix_info_t infos[4];
    size_t count = 0;
    int next = 1;
    pmix_rank_t rank = 5;

    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    CHECK(argc > 1);
    if (strcmp(argv[next], "any") == 0) {
        next += 1;
    } else {
        CHECK(argc > next + 1);
        if (strcmp(argv[next], "pid") == 0) {
            pid_t pid = atoi(argv[next + 1]);

            PMIX_INFO_LOAD(&infos[count++], PMIX_SERVER_PIDINFO, &pid, PMIX_PID);
        } else if (strcmp(argv[next], "uri") == 0) {
            PMIX_INFO_LOAD(&infos[count++], PMIX_SERVER_URI, argv[next + 1], PMIX_STRING);
        } else {
            PMIX_INFO_LOAD(&infos[count++], PMIX_SERVER_NSPACE, argv[next + 1], PMIX_STRING);
        }
        next += 2;
    }
    if (next + 1 < argc && strcmp(argv[next], "as") == 0) {
        PMIX_INFO_LOAD(&infos[count++], PMIX_TOOL_NSPACE, argv[next + 1], PMIX_STRING);
        PMIX_INFO_LOAD(&infos[count++], PMIX_TOOL_RANK, &rank, PMIX_PROC_RANK);
        next += 2;
    }
    CHECK_OK(PMIx_tool_init(&me, infos, count));
    printf("connected as %s:%u\n", me.nspace, (unsigned)me.rank);
    find_job();
    for (; next < argc; next++) {
        const char *order = argv[next];

        act(order, strcmp(order, "signal") == 0 ? argv[++next] : NULL);
    }
    CHECK_OK(PMIx_tool_finalize());
    printf("finalized\n");
    return 0;
}
