/* Tools that ask for output of a job that has been printed before.
 *
 *   late PID short WHAT     spawns a short job, and pulls its output when it has ended; WHAT is kept
 *   late PID stay           spawns a job of two that waits, with its output, and waits for its end
 *   late PID join NSPACE    pulls the output of that job
 */
#include "waits.h"

#include <pmix_tool.h>

static int complete, processes = 1;
static bool has_ended;

static void on_end(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                   pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    (void)id;
    (void)code;
    (void)source;
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    pthread_mutex_lock(&lock);
    has_ended = true;
    tell();
    handled(done, cbdata);
}

static void on_output(size_t handler, pmix_iof_channel_t channel, pmix_proc_t *source, pmix_byte_object_t *payload,
                      pmix_info_t info[], size_t count)
{
    const pmix_value_t *end = value_among(info, count, PMIX_IOF_COMPLETE);

    (void)handler;
    (void)source;
    pthread_mutex_lock(&lock);
    if (payload != NULL && payload->bytes != NULL && payload->size > 0) {
        printf("%s [%.*s]\n", channel == PMIX_FWD_STDOUT_CHANNEL ? "out" : "err", (int)payload->size, payload->bytes);
        fflush(stdout);
    }
    if (end != NULL) {
        complete++;
    }
    tell();
}

static void spawn(const char *script, pmix_info_t *infos, size_t count, pmix_nspace_t nspace)
{
    pmix_status_t code = PMIX_ERR_JOB_TERMINATED;
    pmix_app_t app;
    char here[4096];

    handle_events(&code, 1, NULL, 0, on_end);
    CHECK(getcwd(here, sizeof(here)) != NULL);
    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("/bin/sh");
    app.argv = calloc(4, sizeof(char *));
    app.argv[0] = strdup("sh");
    app.argv[1] = strdup("-c");
    app.argv[2] = strdup(script);
    app.cwd = strdup(here);
    app.maxprocs = processes;
    CHECK_OK(PMIx_Spawn(infos, count, &app, 1, nspace));
    PMIX_APP_DESTRUCT(&app);
    printf("job %s\n", nspace);
    fflush(stdout);
}

static void wait_for_end(void)
{
    WAIT_UNTIL("the end of the job", has_ended);
}

static void pull(const char *nspace)
{
    pmix_proc_t all;

    PMIX_LOAD_PROCID(&all, nspace, PMIX_RANK_WILDCARD);
    CHECK(PMIx_IOF_pull(&all, 1, NULL, 0, PMIX_FWD_STDOUT_CHANNEL | PMIX_FWD_STDERR_CHANNEL, on_output, NULL, NULL) >=
          0);
    printf("pulls\n");
    fflush(stdout);
}

static void wait_for_output(void)
{
    WAIT_UNTIL("the ends of both streams of each process", complete >= 2 * processes);
}

static void short_job(const char *what)
{
    pmix_info_t infos[4];
    size_t count = 0;
    pmix_nspace_t nspace;
    bool yes = true, no = false;
    uint32_t size = 8;

    PMIX_INFO_LOAD(&infos[count++], PMIX_FWD_STDOUT, &no, PMIX_BOOL);
    PMIX_INFO_LOAD(&infos[count++], PMIX_FWD_STDERR, &no, PMIX_BOOL);
    if (strcmp(what, "default") != 0) {
        PMIX_INFO_LOAD(&infos[count], PMIX_IOF_CACHE_SIZE, &size, PMIX_UINT32);
        PMIX_INFO_REQUIRED(&infos[count]);
        count++;
    }
    if (strcmp(what, "end") == 0) {
        PMIX_INFO_LOAD(&infos[count++], PMIX_IOF_DROP_OLDEST, &yes, PMIX_BOOL);
    }
    spawn("echo one; echo two; echo three; sleep 0.2; echo bad >&2", infos, count, nspace);
    wait_for_end();
    pull(nspace);
    wait_for_output();
}

int main(int argc, char **argv)
{
    pmix_info_t infos[1];
    pmix_nspace_t nspace;
    pid_t pid;

    signal(SIGALRM, on_deadline);
    alarm(DEADLINE);
    CHECK(argc > 2);
    pid = atoi(argv[1]);
    PMIX_INFO_LOAD(&infos[0], PMIX_SERVER_PIDINFO, &pid, PMIX_PID);
    CHECK_OK(PMIx_tool_init(&me, infos, 1));
    if (strcmp(argv[2], "stay") == 0) {
        processes = 2;
        PMIX_INFO_LOAD(&infos[0], PMIX_MAPBY, "node", PMIX_STRING);
        spawn("echo early; until [ -e go ]; do sleep 0.02; done; echo late", infos, 1, nspace);
        wait_for_end();
    } else {
        CHECK(argc > 3);
        if (strcmp(argv[2], "join") == 0) {
            processes = 2;
            pull(argv[3]);
            wait_for_output();
        } else {
            short_job(argv[3]);
        }
    }
    CHECK_OK(PMIx_tool_finalize());
    return 0;
}
