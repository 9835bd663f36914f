/* A tool that spawns programs of others: it feeds them, and shows their output.
 *
 *   feed PID input TARGET      two processes that copy their input
 *   feed PID tags              a process whose output the library tags
 *   feed PID directives        requests with unknown directives
 *   feed PID agent             an agent executes the program, which is copied or not
 */
#include "waits.h"

#include <pmix_tool.h>

#define BLOCK 10000
#define BLOCKS 100

/* Bytes and complete streams of each rank. */
static size_t received[2];
static bool complete[2];
static bool has_ended;

static void on_end(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                   pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    const pmix_value_t *status = value_among(info, count, PMIX_EXIT_CODE);
    const pmix_value_t *failed = value_among(info, count, PMIX_PROCID);
    const pmix_value_t *time_of_end = value_among(info, count, PMIX_EVENT_TIMESTAMP);

    (void)id;
    (void)code;
    (void)source;
    (void)results;
    (void)nresults;
    CHECK(status != NULL && status->type == PMIX_INT);
    CHECK(time_of_end != NULL && time_of_end->type == PMIX_TIME);
    CHECK(labs((long)(time_of_end->data.time - time(NULL))) < DEADLINE);
    pthread_mutex_lock(&lock);
    printf("ended with %d", status->data.integer);
    if (failed != NULL) {
        printf(", first rank %u", (unsigned)failed->data.proc->rank);
    }
    printf("\n");
    has_ended = true;
    tell();
    handled(done, cbdata);
}

static void on_output(size_t handler, pmix_iof_channel_t channel, pmix_proc_t *source, pmix_byte_object_t *payload,
                      pmix_info_t info[], size_t count)
{
    const pmix_value_t *end = value_among(info, count, PMIX_IOF_COMPLETE);

    (void)handler;
    (void)channel;
    CHECK(source->rank < 2);
    pthread_mutex_lock(&lock);
    if (payload != NULL) {
        received[source->rank] += payload->size;
    }
    if (end != NULL) {
        complete[source->rank] = true;
    }
    tell();
}

static void spawn(pmix_info_t *infos, size_t count, const char *script, int processes, pmix_nspace_t nspace,
                  pmix_status_t expected)
{
    pmix_app_t app;

    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("/bin/sh");
    app.argv = calloc(4, sizeof(char *));
    app.argv[0] = strdup("sh");
    app.argv[1] = strdup("-c");
    app.argv[2] = strdup(script);
    app.cwd = strdup("/");
    app.maxprocs = processes;
    CHECK_STATUS(PMIx_Spawn(infos, count, &app, 1, nspace), expected);
    PMIX_APP_DESTRUCT(&app);
}

static void on_pushed(pmix_status_t status, void *cbdata)
{
    wake(cbdata, status);
}

static void push(const pmix_proc_t *to, char *text, size_t size, pmix_info_t *infos, size_t count)
{
    struct waiter pushed = WAITER;
    pmix_byte_object_t bytes = {text, size};
    pmix_status_t status;

    AT("input is taken");
    status = PMIx_IOF_push(to, 1, &bytes, infos, count, on_pushed, &pushed);
    CHECK_OK(status == PMIX_SUCCESS ? wait_for(&pushed, 1) : status);
}

static void wait_end(void)
{
    WAIT_UNTIL("the end of the job", has_ended);
}

/* Ranks that read nothing at first: what is pushed fills pipes, and waits. */
static void input(const char *target)
{
    static char block[BLOCK];
    pmix_info_t infos[4], end;
    pmix_proc_t readers;
    pmix_nspace_t nspace;
    pmix_status_t code = PMIX_ERR_JOB_TERMINATED;
    uint32_t rank = strcmp(target, "all") == 0 ? PMIX_RANK_WILDCARD : (uint32_t)atoi(target);
    bool yes = true, no = false;

    memset(block, 'x', sizeof(block));
    handle_events(&code, 1, NULL, 0, on_end);
    PMIX_INFO_LOAD(&infos[0], PMIX_STDIN_TGT, &rank, PMIX_UINT32);
    PMIX_INFO_LOAD(&infos[1], PMIX_MAPBY, "node", PMIX_STRING);
    PMIX_INFO_LOAD(&infos[2], PMIX_FWD_STDOUT, &no, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[3], PMIX_FWD_STDERR, &no, PMIX_BOOL);
    spawn(infos, 4, "sleep 0.3; cat; test $PMIX_RANK != 1 || exit 4", 2, nspace, PMIX_SUCCESS);
    PMIX_LOAD_PROCID(&readers, nspace, PMIX_RANK_WILDCARD);
    CHECK(PMIx_IOF_pull(&readers, 1, NULL, 0, PMIX_FWD_STDOUT_CHANNEL, on_output, NULL, NULL) >= 0);
    readers.rank = rank;
    for (int number = 0; number < BLOCKS; number++) {
        push(&readers, block, sizeof(block), NULL, 0);
    }
    PMIX_INFO_LOAD(&end, PMIX_IOF_COMPLETE, &yes, PMIX_BOOL);
    push(&readers, NULL, 0, &end, 1);
    AT("the output of both ranks");
    pthread_mutex_lock(&lock);
    while (!complete[0] || !complete[1]) {
        pthread_cond_wait(&changed, &lock);
    }
    printf("rank 0 copied %zu, rank 1 copied %zu\n", received[0], received[1]);
    pthread_mutex_unlock(&lock);
    wait_end();
}

static void tags(void)
{
    pmix_info_t infos[1];
    pmix_nspace_t nspace;
    pmix_status_t code = PMIX_ERR_JOB_TERMINATED;
    bool yes = true;

    handle_events(&code, 1, NULL, 0, on_end);
    PMIX_INFO_LOAD(&infos[0], PMIX_IOF_TAG_OUTPUT, &yes, PMIX_BOOL);
    spawn(infos, 1, "echo out; echo err >&2", 1, nspace, PMIX_SUCCESS);
    wait_end();
}

static void agent(void)
{
    pmix_info_t infos[2];
    pmix_nspace_t nspace;
    pmix_status_t code = PMIX_ERR_JOB_TERMINATED;
    bool yes = true;

    handle_events(&code, 1, NULL, 0, on_end);
    PMIX_INFO_LOAD(&infos[0], PMIX_EXEC_AGENT, "env VIA=agent", PMIX_STRING);
    PMIX_INFO_REQUIRED(&infos[0]);
    PMIX_INFO_LOAD(&infos[1], PMIX_PRELOAD_BIN, &yes, PMIX_BOOL);
    for (size_t count = 1; count <= 2; count++) {
        spawn(infos, count, "echo $0 by ${VIA:-nobody}", 1, nspace, PMIX_SUCCESS);
        wait_end();
        has_ended = false;
    }
    PMIX_INFO_LOAD(&infos[0], PMIX_EXEC_AGENT, "", PMIX_STRING);
    spawn(infos, 1, "exit 0", 1, nspace, PMIX_ERR_BAD_PARAM);
    PMIX_INFO_LOAD(&infos[0], PMIX_FORKEXEC_AGENT, "env", PMIX_STRING);
    PMIX_INFO_REQUIRED(&infos[0]);
    spawn(infos, 1, "exit 0", 1, nspace, PMIX_ERR_NOT_SUPPORTED);
    PMIX_INFO_LOAD(&infos[0], PMIX_LAUNCHER_DAEMON, "daemon", PMIX_STRING);
    PMIX_INFO_REQUIRED(&infos[0]);
    spawn(infos, 1, "exit 0", 1, nspace, PMIX_ERR_NOT_SUPPORTED);
}

static void directives(void)
{
    pmix_info_t info;
    pmix_nspace_t nspace;
    bool yes = true;

    PMIX_INFO_LOAD(&info, "pmix.of.tomorrow", &yes, PMIX_BOOL);
    spawn(&info, 1, "exit 0", 1, nspace, PMIX_SUCCESS);
    PMIX_INFO_REQUIRED(&info);
    spawn(&info, 1, "exit 0", 1, nspace, PMIX_ERR_NOT_SUPPORTED);
    PMIX_INFO_LOAD(&info, PMIX_DEBUG_STOP_ON_EXEC, "nonsense", PMIX_STRING);
    spawn(&info, 1, "exit 0", 1, nspace, PMIX_ERR_BAD_PARAM);
    printf("directives are checked\n");
}

int main(int argc, char **argv)
{
    pmix_info_t infos[1];
    pid_t pid;

    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    CHECK(argc > 2);
    pid = atoi(argv[1]);
    PMIX_INFO_LOAD(&infos[0], PMIX_SERVER_PIDINFO, &pid, PMIX_PID);
    CHECK_OK(PMIx_tool_init(&me, infos, 1));
    if (strcmp(argv[2], "input") == 0) {
        CHECK(argc > 3);
        input(argv[3]);
    } else if (strcmp(argv[2], "agent") == 0) {
        agent();
    } else if (strcmp(argv[2], "tags") == 0) {
        tags();
    } else {
        directives();
    }
    CHECK_OK(PMIx_tool_finalize());
    return 0;
}
