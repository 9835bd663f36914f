/* Thirty spawns one after another, each with connect and disconnect, as in MPI
 * programs that spawn.
 * run: 1
 */
#include "spawn.h"

int main(int argc, char **argv)
{
    (void)argv;
    if (argc > 1) {
        pmix_proc_t both[2];

        start();
        both[0] = parent_of_mine();
        both[1] = peer(PMIX_RANK_WILDCARD);
        CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
        CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
        return finish();
    }
    start();
    watch_job_ends();
    for (int round = 0; round < 30; round++) {
        pmix_nspace_t children;
        pmix_proc_t both[2];

        spawn_self(1, "child", NULL, children);
        both[0] = me;
        PMIX_LOAD_PROCID(&both[1], children, PMIX_RANK_WILDCARD);
        CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
        CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
        CHECK_NUMBER(wait_job_end(children).status, 0);
    }
    return finish();
}
