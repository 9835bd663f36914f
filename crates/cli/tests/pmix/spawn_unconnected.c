/* Parent and child know each other's job without having connected: its size,
 * the places of its ranks, and what they have put.
 * run: 1
 */
#include "spawn.h"

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    pmix_proc_t other;

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
        fence();
        return finish();
    }
    watch_job_ends();
    spawn_self(2, "child", NULL, children);
    PMIX_LOAD_PROCID(&other, children, PMIX_RANK_WILDCARD);
    CHECK_NUMBER(number_of(&other, PMIX_JOB_SIZE), 2);
    CHECK_NUMBER(wait_job_end(children).status, 0);
    return finish();
}
