/* One spawn of two applications of different sizes: one job with consecutive
 * ranks, each with the number, size and first rank of its application.
 * run: 1
 * nodes: 1
 */
#include "spawn.h"

static int child(const char *role)
{
    pmix_proc_t all, leader;
    pmix_info_t info[2];
    pmix_value_t *value = NULL;
    uint32_t app = strcmp(role, "first") == 0 ? 0 : 1;
    bool yes = true;

    start();
    all = peer(PMIX_RANK_WILDCARD);
    CHECK_NUMBER(job_size, 5);
    CHECK_NUMBER(number_of(&all, PMIX_JOB_NUM_APPS), 2);
    CHECK_NUMBER(number_of(&me, PMIX_APPNUM), app);
    CHECK_NUMBER(number_of(&me, PMIX_APP_RANK), me.rank - (app == 0 ? 0 : 2));
    PMIX_INFO_LOAD(&info[0], PMIX_APP_INFO, &yes, PMIX_BOOL);
    PMIX_INFO_LOAD(&info[1], PMIX_APPNUM, &app, PMIX_UINT32);
    CHECK_OK(PMIx_Get(&all, PMIX_APP_SIZE, info, 2, &value));
    CHECK_NUMBER(number_in(value), app == 0 ? 2 : 3);
    PMIX_VALUE_RELEASE(value);
    CHECK_OK(PMIx_Get(&all, PMIX_APPLDR, info, 2, &value));
    CHECK_NUMBER(number_in(value), app == 0 ? 0 : 2);
    PMIX_VALUE_RELEASE(value);
    leader = peer(app == 0 ? 4 : 0);
    CHECK_NUMBER(number_of(&leader, PMIX_APPNUM), 1 - app);
    fence();
    return finish();
}

int main(int argc, char **argv)
{
    pmix_app_t apps[2];
    pmix_info_t directive;
    pmix_nspace_t children;

    if (argc == 2) {
        return child(argv[1]);
    }
    start();
    watch_job_ends();
    self_app(&apps[0], 2, "first", NULL);
    self_app(&apps[1], 3, "second", NULL);
    map_by_node(&directive);
    CHECK_OK(PMIx_Spawn(&directive, 1, apps, 2, children));
    CHECK_NUMBER(wait_job_end(children).status, 0);
    return finish();
}
