/* Parent and child can read each other's job information without a connect: its
 * size, the placement of its ranks, and the keys they have put. They connect at
 * the end, so that neither exits before the other has read everything.
 * run: 1
 */
#include "spawn.h"

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    pmix_proc_t other, both[2];

    (void)argv;
    start();
    put_number(PMIX_GLOBAL, "shout", argc > 1 ? 200 + me.rank : 100 + me.rank);
    CHECK_OK(PMIx_Commit());
    if (argc > 1) {
        pmix_proc_t parent = parent_of_mine();

        other = parent;
        other.rank = PMIX_RANK_WILDCARD;
        CHECK_NUMBER(number_of(&other, PMIX_JOB_SIZE), 1);
        CHECK_NUMBER(number_of(&parent, "shout"), 100);
        if (library_at_least(5, 0, 0)) {
            CHECK_NUMBER(number_of(&parent, PMIX_LOCAL_RANK), 0);
        }
        both[0] = parent;
        both[1] = peer(PMIX_RANK_WILDCARD);
        CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
        CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
        return finish();
    }
    watch_job_ends();
    spawn_self(2, "child", NULL, children);
    PMIX_LOAD_PROCID(&other, children, PMIX_RANK_WILDCARD);
    CHECK_NUMBER(number_of(&other, PMIX_JOB_SIZE), 2);
    both[0] = me;
    both[1] = other;
    CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
    CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
    CHECK_NUMBER(wait_job_end(children).status, 0);
    return finish();
}
