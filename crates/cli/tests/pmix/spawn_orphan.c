/* The spawner of a held job, which is also the source of its stdin, exits
 * without releasing it: the job is released, reads EOF and exits.
 * run: 1
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
    (void)info;
    (void)count;
    (void)results;
    (void)nresults;
    wake(&waits, PMIX_SUCCESS);
    done(PMIX_EVENT_ACTION_COMPLETE, NULL, 0, NULL, NULL, cbdata);
}

int main(int argc, char **argv)
{
    pmix_status_t code = PMIX_READY_FOR_DEBUG;
    pmix_info_t directives[2];
    pmix_nspace_t nspace;
    pmix_app_t app;
    uint32_t all = PMIX_RANK_WILDCARD;
    bool yes = true;

    (void)argv;
    start();
    if (argc > 1) {
        CHECK_NUMBER(getchar(), EOF);
        return finish();
    }
    handle_events(&code, 1, NULL, 0, on_waiting);
    self_app(&app, 2, "child", NULL);
    PMIX_INFO_LOAD(&directives[0], PMIX_DEBUG_STOP_IN_INIT, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&directives[1], PMIX_STDIN_TGT, &all, PMIX_UINT32);
    CHECK_OK(PMIx_Spawn(directives, 2, &app, 1, nspace));
    CHECK_OK(wait_for(&waits, 1));
    return finish();
}
