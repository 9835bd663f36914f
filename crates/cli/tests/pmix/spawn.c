/* Rank 0 spawns two children. Parents and children connect, read each other's job
 * information and data, and disconnect; the parents get an event when the children exit.
 * run: 1
 * run: 3
 * nodes: 3
 */
#include "spawn.h"

static void exchange(const char *other, uint32_t other_size, uint32_t base)
{
    pmix_proc_t theirs;

    PMIX_LOAD_PROCID(&theirs, other, PMIX_RANK_WILDCARD);
    CHECK_NUMBER(number_of(&theirs, PMIX_JOB_SIZE), other_size);
    for (pmix_rank_t rank = 0; rank < other_size; rank++) {
        theirs.rank = rank;
        CHECK_NUMBER(number_of(&theirs, "who"), base + rank);
        CHECK(number_of(&theirs, PMIX_LOCAL_RANK) < other_size);
    }
}

static int child(const char *parents)
{
    pmix_proc_t both[2], parent;

    start();
    CHECK_NUMBER(job_size, 2);
    parent = parent_of_mine();
    CHECK_NUMBER(parent.rank, 0);
    CHECK(strcmp(parent.nspace, me.nspace) != 0);
    put_number(PMIX_GLOBAL, "who", 2000 + me.rank);
    CHECK_OK(PMIx_Commit());
    fence_data();
    PMIX_LOAD_PROCID(&both[0], parent.nspace, PMIX_RANK_WILDCARD);
    both[1] = peer(PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
    exchange(parent.nspace, (uint32_t)strtoul(parents, NULL, 10), 1000);
    CHECK_OK(PMIx_Fence(both, 2, NULL, 0));
    CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
    return finish();
}

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    pmix_proc_t both[2], first;
    char number[16], *name;
    struct ended end;

    if (argc == 3) {
        return child(argv[2]);
    }
    start();
    first = peer(0);
    watch_job_ends();
    put_number(PMIX_GLOBAL, "who", 1000 + me.rank);
    if (me.rank == 0) {
        snprintf(number, sizeof(number), "%u", job_size);
        spawn_self(2, "child", number, children);
        put_text(PMIX_GLOBAL, "children", children);
    }
    CHECK_OK(PMIx_Commit());
    fence_data();
    name = text_of(&first, "children");
    both[0] = peer(PMIX_RANK_WILDCARD);
    PMIX_LOAD_PROCID(&both[1], name, PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
    exchange(name, 2, 2000);
    CHECK_OK(PMIx_Fence(both, 2, NULL, 0));
    CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
    if (me.rank == 0) {
        end = wait_job_end(name);
        CHECK_NUMBER(end.status, 0);
    }
    fence();
    free(name);
    return finish();
}
