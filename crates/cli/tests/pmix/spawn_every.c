/* Every rank spawns at the same time, with the non-blocking call; all new
 * namespaces are different.
 * run: 4
 * nodes: 4
 */
#include "spawn.h"

struct spawned {
    struct waiter waiter;
    pmix_nspace_t nspace;
};

static void on_spawned(pmix_status_t status, pmix_nspace_t nspace, void *cbdata)
{
    struct spawned *spawned = cbdata;

    if (status == PMIX_SUCCESS) {
        PMIX_LOAD_NSPACE(spawned->nspace, nspace);
    }
    wake(&spawned->waiter, status);
}

int main(int argc, char **argv)
{
    struct spawned spawned = {.waiter = WAITER};
    pmix_app_t app;

    (void)argv;
    start();
    if (argc > 1) {
        (void)parent_of_mine();
        fence();
        return finish();
    }
    watch_job_ends();
    fence();
    self_app(&app, 2, "child", NULL);
    CHECK_OK(PMIx_Spawn_nb(NULL, 0, &app, 1, on_spawned, &spawned));
    CHECK_OK(wait_for(&spawned.waiter, 1));
    CHECK_NUMBER(wait_job_end(spawned.nspace).status, 0);
    put_text(PMIX_GLOBAL, "job", spawned.nspace);
    CHECK_OK(PMIx_Commit());
    fence_data();
    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);
        char *job = text_of(&other, "job");
        CHECK((strcmp(job, spawned.nspace) == 0) == (rank == me.rank));
        free(job);
    }
    fence();
    return finish();
}
