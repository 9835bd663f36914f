/* PMIx_Abort by one rank for all ranks, by all ranks, for a list of ranks, and by the
 * only rank of a job. Meanwhile the other ranks wait in a fence that never completes.
 * run: 3 one => 17
 * run: 3 all => 17
 * run: 3 list => 17
 * run: 1 one => 17
 * run: 3 zero => any
 * nodes: 3 zero => any
 */
#include "check.h"

int main(int argc, char **argv)
{
    pmix_proc_t all, everybody[64];

    start();
    CHECK(argc == 2 && job_size <= 64);
    all = peer(PMIX_RANK_WILDCARD);
    fence();
    passed();
    fence();
    if (strcmp(argv[1], "list") == 0 && me.rank == 1) {
        for (pmix_rank_t rank = 0; rank < job_size; rank++) {
            everybody[rank] = peer(rank);
        }
        (void)PMIx_Abort(17, "abort of a list", everybody, job_size);
    } else if (strcmp(argv[1], "all") == 0) {
        (void)PMIx_Abort(17, "abort by everybody", NULL, 0);
    } else if (me.rank == job_size - 1) {
        (void)PMIx_Abort(strcmp(argv[1], "zero") == 0 ? 0 : 17, "abort by one rank", &all, 1);
    }

    /* This fence never completes; the launcher kills the process. */
    if (me.rank != 0 || job_size == 1) {
        for (;;) {
            pause();
        }
    }
    (void)PMIx_Fence(&all, 1, NULL, 0);
    for (;;) {
        pause();
    }
}
