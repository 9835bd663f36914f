/* PMIX_LOCAL is visible to ranks on the same node, PMIX_REMOTE to ranks on
 * other nodes, PMIX_GLOBAL to all; a process can get all of its own keys.
 * run: 4
 * nodes: 4
 */
#include "check.h"

/* Checks that the process can get its own keys, before and after the commit. */
static void expect_own(void)
{
    CHECK_NUMBER(number_of(&me, "local"), me.rank);
    CHECK_NUMBER(number_of(&me, "remote"), me.rank);
    CHECK_NUMBER(number_of(&me, "global"), me.rank);
}

/* Older headers do not define it, and older libraries do not return it. */
#ifndef PMIX_ERR_EXISTS_OUTSIDE_SCOPE
#define PMIX_ERR_EXISTS_OUTSIDE_SCOPE PMIX_ERR_NOT_FOUND
#endif

static void expect_absent(const pmix_proc_t *proc, const char *key)
{
    pmix_value_t *value = NULL;
    pmix_info_t info;
    bool yes = true;

    PMIX_INFO_LOAD(&info, PMIX_IMMEDIATE, &yes, PMIX_BOOL);
    pmix_status_t status = PMIx_Get(proc, key, &info, 1, &value);
    if (status != PMIX_ERR_NOT_FOUND && status != PMIX_ERR_EXISTS_OUTSIDE_SCOPE) {
        FAIL("%s of rank %u: expected PMIX_ERR_NOT_FOUND or PMIX_ERR_EXISTS_OUTSIDE_SCOPE, got %s", key,
             (unsigned)proc->rank, PMIx_Error_string(status));
    }
}

int main(void)
{
    start();
    put_number(PMIX_LOCAL, "local", me.rank);
    put_number(PMIX_REMOTE, "remote", me.rank);
    put_number(PMIX_GLOBAL, "global", me.rank);
    expect_own();
    CHECK_OK(PMIx_Commit());
    fence_data();
    expect_own();

    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);
        bool same_node = is_here(&other);

        CHECK_NUMBER(number_of(&other, "global"), rank);
        if (rank == me.rank) {
            continue;
        }
        CHECK_NUMBER(number_of(&other, same_node ? "local" : "remote"), rank);
        expect_absent(&other, same_node ? "remote" : "local");
    }
    fence();
    return finish();
}
