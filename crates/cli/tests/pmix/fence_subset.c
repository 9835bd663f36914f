/* Fences over some of the ranks do not wait for the other ones. Rank 1 takes
 * part in all of them, rank 3 in none until the end.
 * run: 4
 * run: 7
 * nodes: 7
 */
#include "check.h"

static void fence_of(const pmix_rank_t *ranks, size_t count)
{
    pmix_proc_t procs[8];

    for (size_t i = 0; i < count; i++) {
        procs[i] = peer(ranks[i]);
    }
    for (size_t i = 0; i < count; i++) {
        if (ranks[i] == me.rank) {
            CHECK_OK(PMIx_Fence(procs, count, NULL, 0));
            return;
        }
    }
}

int main(void)
{
    static const pmix_rank_t pair[] = {0, 1}, later[] = {1, 2}, alone[] = {1}, three[] = {2, 0, 1};

    start();
    need_ranks(4);
    for (int round = 0; round < 50; round++) {
        fence_of(pair, 2);
        fence_of(later, 2);
        fence_of(alone, 1);
        fence_of(three, 3);
    }
    if (me.rank == 3) {
        put_number(PMIX_GLOBAL, "spectator", 3);
        CHECK_OK(PMIx_Commit());
    }
    if (me.rank == 0) {
        pmix_proc_t other = peer(3);
        CHECK_NUMBER(number_of(&other, "spectator"), 3);
    }
    fence();
    return finish();
}
