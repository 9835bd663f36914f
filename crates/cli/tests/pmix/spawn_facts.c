/* What the spawner can know of the ranks of a job before both have connected:
 * one by one, in an order in which the library has to ask for some of it.
 * run: 1
 * run: 2
 */
#include "spawn.h"

#define CHILDREN 2

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    pmix_proc_t all, child;
    char *host, *same;

    (void)argv;
    start();
    if (argc > 1) {
        /* They stay until their parent has asked. */
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
        CHECK_NUMBER(number_of(&all, PMIX_NODE_SIZE), job_size + CHILDREN);
        host = text_of(&all, PMIX_HOSTNAME);
        for (pmix_rank_t rank = 0; rank < CHILDREN; rank++) {
            PMIX_LOAD_PROCID(&child, children, rank);
            CHECK_NUMBER(number_of(&child, PMIX_LOCAL_RANK), rank);
            CHECK_NUMBER(number_of(&child, PMIX_NODE_RANK), job_size + rank);
            CHECK_NUMBER(number_of(&child, PMIX_APP_RANK), rank);
            CHECK_NUMBER(number_of(&child, PMIX_APPNUM), 0);
            CHECK_NUMBER(number_of(&child, PMIX_NODEID), 0);
            CHECK(number_of(&child, PMIX_PROC_PID) > 1);
            same = text_of(&child, PMIX_HOSTNAME);
            CHECK_TEXT(same, host);
            free(same);
        }
        free(host);
        put_number(PMIX_GLOBAL, "asked", 1);
        CHECK_OK(PMIx_Commit());
        CHECK_NUMBER(wait_job_end(children).status, 0);
    }
    fence();
    return finish();
}
