/* Starts and ends of spawned jobs that the launcher logs: it prints a line about
 * the start and the end of the first job, and one about the end of the second
 * one, which fails.
 * run: 1 -- keep-going
 */
#include "spawn.h"

/* Spawns a job of two processes, of which one exits with a code, and waits for its end. */
static void spawn_logged(const char *directive, const char *code)
{
    pmix_app_t app;
    pmix_info_t info;
    pmix_nspace_t child;
    bool yes = true;

    self_app(&app, 2, "child", code);
    PMIX_INFO_LOAD(&info, directive, &yes, PMIX_BOOL);
    PMIX_INFO_REQUIRED(&info);
    CHECK_OK(PMIx_Spawn(&info, 1, &app, 1, child));
    wait_job_end(child);
    PMIX_APP_DESTRUCT(&app);
}

int main(int argc, char **argv)
{
    start();
    if (argc == 3) {
        int code = me.rank == 1 ? atoi(argv[2]) : 0;

        fence();
        finish();
        return code;
    }
    watch_job_ends();
    spawn_logged(PMIX_LOG_JOB_EVENTS, "0");
    spawn_logged(PMIX_LOG_COMPLETION, "3");
    return finish();
}
