/* A job spawned to stop in init: its spawner gets one event when all ranks
 * wait. No rank returns from PMIx_Init before it is released, and releasing one
 * rank releases only that rank.
 * run: 1
 * nodes: 1
 * not: 3 (it uses other names for all of these keys)
 */
#include "spawn.h"

static struct waiter waits = WAITER;

static void on_waiting(size_t id, pmix_status_t code, const pmix_proc_t *source, pmix_info_t info[], size_t count,
                       pmix_info_t *results, size_t nresults, pmix_event_notification_cbfunc_fn_t done, void *cbdata)
{
    (void)id;
    (void)code;
    (void)source;
    (void)results;
    (void)nresults;
    wake(&waits, value_among(info, count, PMIX_NSPACE) != NULL ? PMIX_SUCCESS : PMIX_ERR_NOT_FOUND);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

static int child(const char *file)
{
    FILE *mark;
    char name[4096];

    start();
    snprintf(name, sizeof(name), "%s/%u", file, me.rank);
    mark = fopen(name, "w");
    CHECK(mark != NULL);
    fclose(mark);
    return finish();
}

static void release(const char *nspace, pmix_rank_t rank)
{
    pmix_info_t info[2];
    pmix_proc_t *target;
    pmix_data_array_t *range;
    bool yes = true;

    PMIX_DATA_ARRAY_CREATE(range, 1, PMIX_PROC);
    target = range->array;
    PMIX_LOAD_PROCID(target, nspace, rank);
    PMIX_INFO_LOAD(&info[0], PMIX_EVENT_CUSTOM_RANGE, range, PMIX_DATA_ARRAY);
    PMIX_INFO_LOAD(&info[1], PMIX_EVENT_NON_DEFAULT, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Notify_event(PMIX_ERR_DEBUGGER_RELEASE, &me, PMIX_RANGE_CUSTOM, info, 2, NULL, NULL));
}

static bool is_there(const char *directory, const char *name)
{
    char path[4096];

    snprintf(path, sizeof(path), "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

int main(int argc, char **argv)
{
    pmix_status_t code = PMIX_READY_FOR_DEBUG;
    pmix_nspace_t nspace;
    pmix_info_t directives[2];
    pmix_app_t app;
    char directory[] = "/tmp/spawn-stop-XXXXXX";
    char path[4096];
    bool yes = true;

    if (argc > 2) {
        return child(argv[2]);
    }
    CHECK(mkdtemp(directory) != NULL);
    start();
    watch_job_ends();
    handle_events(&code, 1, NULL, 0, on_waiting);
    self_app(&app, 2, "child", directory);
    PMIX_INFO_LOAD(&directives[0], PMIX_DEBUG_STOP_IN_INIT, &yes, PMIX_BOOL);
    map_by_node(&directives[1]);
    CHECK_OK(PMIx_Spawn(directives, 2, &app, 1, nspace));
    CHECK_OK(wait_for(&waits, 1));
    CHECK(!is_there(directory, "0"));
    CHECK(!is_there(directory, "1"));
    release(nspace, 1);
    for (int tries = 0; tries < 1000 && !is_there(directory, "1"); tries++) {
        usleep(20000);
    }
    CHECK(is_there(directory, "1"));
    CHECK(!is_there(directory, "0"));
    release(nspace, 0);
    CHECK_NUMBER(wait_job_end(nspace).status, 0);
    CHECK_NUMBER(waits.done, 1);
    for (int rank = 0; rank < 2; rank++) {
        snprintf(path, sizeof(path), "%s/%d", directory, rank);
        CHECK(unlink(path) == 0);
    }
    rmdir(directory);
    return finish();
}
