/* A group over two jobs: rank 0 spawns two children. Parents and children
 * construct one group with a context id, and read each other's data.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "spawn.h"
#include "group.h"

/* Each job has two ranks; the first member is rank 0 of the parent job. */
static void meet(const char *parents, const char *children)
{
    pmix_proc_t members[4];
    size_t context;

    for (pmix_rank_t rank = 0; rank < 2; rank++) {
        PMIX_LOAD_PROCID(&members[rank], parents, rank);
        PMIX_LOAD_PROCID(&members[2 + rank], children, rank);
    }
    put_number(PMIX_GLOBAL, "data", me.rank + (strcmp(me.nspace, parents) == 0 ? 10 : 20));
    CHECK_OK(PMIx_Commit());
    context = construct("two-jobs", members, 4);
    for (pmix_rank_t rank = 0; rank < 2; rank++) {
        CHECK_NUMBER(number_of(&members[rank], "data"), 10 + rank);
        CHECK_NUMBER(number_of(&members[2 + rank], "data"), 20 + rank);
    }
    {
        pmix_value_t value;
        value.type = PMIX_SIZE;
        value.data.size = context;
        CHECK_OK(PMIx_Put(PMIX_GLOBAL, "context", &value));
        CHECK_OK(PMIx_Commit());
    }
    CHECK_OK(PMIx_Fence(members, 4, NULL, 0));
    CHECK_OK(PMIx_Group_destruct("two-jobs", NULL, 0));
}

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    pmix_proc_t first;
    char *name;

    (void)argv;
    start();
    CHECK_NUMBER(job_size, 2);
    if (argc > 1) {
        pmix_proc_t parent = parent_of_mine();
        meet(parent.nspace, me.nspace);
        return finish();
    }
    first = peer(0);
    watch_job_ends();
    if (me.rank == 0) {
        spawn_self(2, "child", NULL, children);
        put_text(PMIX_GLOBAL, "children", children);
        CHECK_OK(PMIx_Commit());
    }
    fence_data();
    name = text_of(&first, "children");
    meet(me.nspace, name);
    if (me.rank == 0) {
        CHECK_NUMBER(wait_job_end(name).status, 0);
    }
    fence();
    free(name);
    return finish();
}
