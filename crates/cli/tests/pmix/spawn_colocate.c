/* A given number of new processes for each listed process, or for each of their
 * nodes, without a process count in the application.
 * run: 2
 * nodes: 2
 */
#include "spawn.h"

/* Older headers do not define these keys. */
#ifndef PMIX_COLOCATE_PROCS
#define PMIX_COLOCATE_PROCS "pmix.colproc"
#define PMIX_COLOCATE_NPERPROC "pmix.colnum.proc"
#define PMIX_COLOCATE_NPERNODE "pmix.colnum.node"
#endif

static void beside(pmix_proc_t *procs, size_t count, const char *key, uint16_t number, uint32_t expected)
{
    pmix_data_array_t array = {.type = PMIX_PROC, .size = count, .array = procs};
    pmix_info_t infos[2];
    pmix_nspace_t children;
    pmix_proc_t child;
    pmix_app_t app;

    self_app(&app, 0, "child", NULL);
    PMIX_INFO_LOAD(&infos[0], PMIX_COLOCATE_PROCS, &array, PMIX_DATA_ARRAY);
    PMIX_INFO_LOAD(&infos[1], key, &number, PMIX_UINT16);
    PMIX_INFO_REQUIRED(&infos[0]);
    PMIX_INFO_REQUIRED(&infos[1]);
    check_what = key;
    CHECK_OK(PMIx_Spawn(infos, 2, &app, 1, children));
    PMIX_LOAD_PROCID(&child, children, PMIX_RANK_WILDCARD);
    CHECK_NUMBER(number_of(&child, PMIX_JOB_SIZE), expected);
    CHECK_NUMBER(wait_job_end(children).status, 0);
}

int main(int argc, char **argv)
{
    pmix_proc_t procs[2];
    uint32_t nodes;

    (void)argv;
    start();
    if (argc > 1) {
        fence();
        return finish();
    }
    if (me.rank == 0) {
        watch_job_ends();
        procs[0] = peer(PMIX_RANK_WILDCARD);
        procs[1] = peer(0);
        nodes = (uint32_t)number_of(procs, PMIX_NUM_NODES);
        beside(procs, 1, PMIX_COLOCATE_NPERPROC, 2, 2 * job_size);
        beside(procs + 1, 1, PMIX_COLOCATE_NPERPROC, 1, 1);
        beside(procs, 2, PMIX_COLOCATE_NPERNODE, 3, 3 * nodes);
    }
    fence();
    return finish();
}
