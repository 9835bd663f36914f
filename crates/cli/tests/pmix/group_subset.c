/* Groups of some of the ranks: the even and the odd ones at the same time under
 * different names, then overlapping groups.
 * run: 4
 * run: 7
 * nodes: 7
 * not: 3 (uses features of later versions)
 */
#include "group.h"

int main(void)
{
    pmix_proc_t members[64];
    size_t count = 0, context;
    const char *name;
    pmix_value_t value;

    start();
    CHECK(job_size >= 2 && job_size <= 64);
    for (pmix_rank_t rank = me.rank % 2; rank < job_size; rank += 2) {
        members[count++] = peer(rank);
    }
    name = me.rank % 2 == 0 ? "even" : "odd";
    context = construct(name, members, count);
    value.type = PMIX_SIZE;
    value.data.size = context;
    CHECK_OK(PMIx_Put(PMIX_GLOBAL, "context", &value));
    CHECK_OK(PMIx_Commit());
    CHECK_OK(PMIx_Fence(members, count, NULL, 0));
    expect_same("context", context, members, count);
    fence();
    {
        pmix_proc_t other = peer(me.rank ^ 1U);
        if (other.rank < job_size) {
            CHECK((size_t)number_of(&other, "context") != context);
        }
    }
    CHECK_OK(PMIx_Group_destruct(name, NULL, 0));

    /* Rank 0 is a member of both groups, constructed one after the other. */
    if (me.rank <= 1) {
        members[0] = peer(0);
        members[1] = peer(1);
        construct("low", members, 2);
        CHECK_OK(PMIx_Group_destruct("low", NULL, 0));
    }
    if (me.rank == 0 || me.rank == job_size - 1) {
        members[0] = peer(0);
        members[1] = peer(job_size - 1);
        construct("ends", members, 2);
        CHECK_OK(PMIx_Group_destruct("ends", NULL, 0));
    }
    fence();
    return finish();
}
