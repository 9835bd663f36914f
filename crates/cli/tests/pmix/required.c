/* An unknown directive that is required causes an error, and the operation is
 * not done; an unknown directive that is not required is ignored.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "spawn.h"

#define UNKNOWN "pmix.of.tomorrow"

static void unknown(pmix_info_t *info, bool required)
{
    bool yes = true;

    PMIX_INFO_LOAD(info, UNKNOWN, &yes, PMIX_BOOL);
    if (required) {
        PMIX_INFO_REQUIRED(info);
    }
}

int main(int argc, char **argv)
{
    pmix_info_t infos[2], *results = NULL;
    pmix_nspace_t children;
    pmix_pdata_t found;
    pmix_proc_t all;
    pmix_app_t app;
    size_t count = 0;
    bool yes = true;

    (void)argv;
    start();
    if (argc > 1) {
        return finish();
    }
    all = peer(PMIX_RANK_WILDCARD);
    unknown(&infos[0], true);
    CHECK_ERROR(PMIx_Fence(&all, 1, infos, 1));
    CHECK_ERROR(PMIx_Connect(&all, 1, infos, 1));
    if (me.rank == 0) {
        self_app(&app, 1, "child", NULL);
        CHECK_ERROR(PMIx_Spawn(infos, 1, &app, 1, children));
        app.info = infos;
        app.ninfo = 1;
        CHECK_ERROR(PMIx_Spawn(NULL, 0, &app, 1, children));
        app.info = NULL;
        app.ninfo = 0;

        PMIX_INFO_LOAD(&infos[1], "required-name", "value", PMIX_STRING);
        CHECK_ERROR(PMIx_Publish(infos, 2));
        PMIX_PDATA_CONSTRUCT(&found);
        PMIX_LOAD_KEY(found.key, "required-name");
        CHECK_STATUS(PMIx_Lookup(&found, 1, NULL, 0), PMIX_ERR_NOT_FOUND);
        PMIX_PDATA_DESTRUCT(&found);

        /* If this were done, it would kill all ranks. */
        PMIX_INFO_LOAD(&infos[1], PMIX_JOB_CTRL_KILL, &yes, PMIX_BOOL);
        CHECK_ERROR(PMIx_Job_control(NULL, 0, infos, 2, &results, &count));

        unknown(&infos[0], false);
        watch_job_ends();
        CHECK_OK(PMIx_Spawn(infos, 1, &app, 1, children));
        CHECK_NUMBER(wait_job_end(children).status, 0);
    }
    unknown(&infos[0], false);
    CHECK_OK(PMIx_Fence(&all, 1, infos, 1));
    return finish();
}
