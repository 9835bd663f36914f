/* A participant dies while the others are in a fence: killed, exited without
 * PMIx_Finalize, or exited after it. The others get an error, once, and can
 * fence without it. The launcher must be run with an option that keeps a job
 * running when a rank dies.
 * run: 4 killed -- keep-going
 * run: 4 exited -- keep-going
 * run: 4 finalized -- keep-going
 * nodes: 4 finalized -- keep-going
 */
#include "check.h"

static void *die(void *how)
{
    /* Each of the others has committed a key that says that it is about to fence. */
    for (pmix_rank_t rank = 0; rank + 1 < job_size; rank++) {
        number_at_last(rank, "waiting");
    }
    if (strcmp(how, "killed") == 0) {
        kill(getpid(), SIGKILL);
    }
    if (strcmp(how, "finalized") == 0) {
        CHECK_OK(PMIx_Finalize(NULL, 0));
    }
    _exit(0);
}

int main(int argc, char **argv)
{
    struct waiter done = WAITER;
    pmix_proc_t all, living[64];
    uint32_t count;
    pmix_status_t status;

    start();
    need_ranks(3);
    CHECK(argc == 2 && job_size <= 64);
    all = peer(PMIX_RANK_WILDCARD);
    fence();
    if (me.rank == job_size - 1) {
        die(argv[1]);
    }
    CHECK_OK(PMIx_Fence_nb(&all, 1, NULL, 0, on_op, &done));
    put_number(PMIX_GLOBAL, "waiting", 1);
    CHECK_OK(PMIx_Commit());
    status = wait_for(&done, 1);
    if (status == PMIX_SUCCESS) {
        FAIL("expected an error from a fence that a member never reached, got PMIX_SUCCESS");
    }
    for (count = 0; count + 1 < job_size; count++) {
        living[count] = peer(count);
    }
    for (int i = 0; i < 10; i++) {
        CHECK_OK(PMIx_Fence(living, count, NULL, 0));
    }
    CHECK_NUMBER(done.done, 1);
    return finish();
}
