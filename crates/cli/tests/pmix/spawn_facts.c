/* What the spawner can read about the ranks of a job before both have connected:
 * rank by rank, in an order that makes the library ask the server for some of it.
 * run: 1
 * run: 2
 * nodes: 2
 */
#include "spawn.h"

#define CHILDREN 2

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    pmix_proc_t all, child;

    (void)argv;
    start();
    if (argc > 1) {
        /* They wait until their parent has read everything. */
        pmix_proc_t parent = parent_of_mine();
        pmix_value_t *value = NULL;
        CHECK_OK(PMIx_Get(&parent, "asked", NULL, 0, &value));
        PMIX_VALUE_RELEASE(value);
        return finish();
    }
    if (me.rank == 0) {
        watch_job_ends();
        spawn_self(CHILDREN, "child", NULL, children);
        PMIX_LOAD_PROCID(&all, children, PMIX_RANK_WILDCARD);
        CHECK_NUMBER(number_of(&all, PMIX_JOB_SIZE), CHILDREN);
        CHECK_NUMBER(number_of(&all, PMIX_NODE_SIZE),
                     count_beside(&me, me.nspace, job_size) + count_beside(&me, children, CHILDREN));
        for (pmix_rank_t rank = 0; rank < CHILDREN; rank++) {
            PMIX_LOAD_PROCID(&child, children, rank);
            CHECK_NUMBER(number_of(&child, PMIX_LOCAL_RANK), count_beside(&child, children, rank));
            CHECK_NUMBER(number_of(&child, PMIX_NODE_RANK),
                         count_beside(&child, me.nspace, job_size) + count_beside(&child, children, rank));
            CHECK_NUMBER(number_of(&child, PMIX_APP_RANK), rank);
            CHECK_NUMBER(number_of(&child, PMIX_APPNUM), 0);
            if (is_here(&child)) {
                CHECK_NUMBER(number_of(&child, PMIX_NODEID), number_of(&me, PMIX_NODEID));
                CHECK(number_of(&child, PMIX_PROC_PID) > 1);
            }
        }
        put_number(PMIX_GLOBAL, "asked", 1);
        CHECK_OK(PMIx_Commit());
        CHECK_NUMBER(wait_job_end(children).status, 0);
    }
    fence();
    return finish();
}
