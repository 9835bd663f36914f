/* A fence over a group by its name: the group's name takes the place of the
 * namespace, and the wildcard rank stands for all members.
 * run: 4
 * nodes: 4
 * not: 3 (uses features of later versions)
 */
#include "group.h"

int main(void)
{
    pmix_proc_t members[64], by_name;
    size_t count = 0;

    start();
    need_ranks(4);
    CHECK(job_size <= 64);
    for (pmix_rank_t rank = 1; rank < job_size; rank++) {
        members[count++] = peer(rank);
    }
    if (me.rank != 0) {
        construct("named", members, count);
        PMIX_LOAD_PROCID(&by_name, "named", PMIX_RANK_WILDCARD);
        for (int i = 0; i < 10; i++) {
            CHECK_OK(PMIx_Fence(&by_name, 1, NULL, 0));
        }
        CHECK_OK(PMIx_Group_destruct("named", NULL, 0));
    }
    fence();
    return finish();
}
