/* A spawn with directives for the job and for the application: mapping, output
 * forwarding, and notification. None of them causes an error.
 * run: 1
 * nodes: 3
 */
#include "spawn.h"

int main(int argc, char **argv)
{
    pmix_info_t info[4];
    pmix_nspace_t children;
    pmix_app_t app;
    bool yes = true;

    (void)argv;
    start();
    if (argc > 1) {
        CHECK_NUMBER(job_size, 3);
        fence();
        return finish();
    }
    watch_job_ends();
    self_app(&app, 3, "child", NULL);
    app.ninfo = 1;
    PMIX_INFO_CREATE(app.info, 1);
    PMIX_INFO_LOAD(&app.info[0], PMIX_WDIR, "/", PMIX_STRING);
    PMIX_INFO_LOAD(&info[0], PMIX_MAPBY, "slot:OVERSUBSCRIBE", PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_NOTIFY_COMPLETION, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[2], PMIX_FWD_STDOUT, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[3], PMIX_FWD_STDERR, &yes, PMIX_BOOL);
    CHECK_OK(PMIx_Spawn(info, 4, &app, 1, children));
    CHECK_NUMBER(wait_job_end(children).status, 0);
    return finish();
}
