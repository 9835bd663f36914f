/* One rank requests that another one be killed, terminated or signalled; the others continue.
 * run: 3 kill -- keep-going => any
 * run: 3 terminate -- keep-going => any
 * run: 3 signal
 * nodes: 3 signal
 * not: 3 (uses features of later versions)
 */
#include "check.h"

static volatile sig_atomic_t signalled;

static void on_signal(int number)
{
    (void)number;
    signalled = 1;
}

int main(int argc, char **argv)
{
    pmix_proc_t victim, living[64];
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;
    bool yes = true;
    int number = SIGUSR1;
    bool only_signal;
    sigset_t blocked, before;

    CHECK(argc == 2);
    only_signal = strcmp(argv[1], "signal") == 0;
    signal(SIGUSR1, on_signal);
    sigemptyset(&blocked);
    sigaddset(&blocked, SIGUSR1);
    start();
    need_ranks(3);
    CHECK(job_size <= 64);
    /* The library has started its threads with SIGUSR1 unblocked. This
     * thread blocks it, so that it cannot arrive before the wait. */
    pthread_sigmask(SIG_BLOCK, &blocked, &before);
    victim = peer(job_size - 1);
    fence();
    if (me.rank == job_size - 1) {
        while (!signalled) {
            struct timespec tick = {0, 50000000};
            AT("wait for SIGUSR1, or for the end");
            sigtimedwait(&blocked, NULL, &tick) == SIGUSR1 ? (void)(signalled = 1) : (void)0;
        }
        if (!only_signal) {
            FAIL("expected to be ended, got SIGUSR1");
        }
        return finish();
    }
    if (me.rank == 0) {
        pmix_status_t status;

        if (only_signal) {
            PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_SIGNAL, &number, PMIX_INT);
        } else {
            PMIX_INFO_LOAD(&info, strcmp(argv[1], "kill") == 0 ? PMIX_JOB_CTRL_KILL : PMIX_JOB_CTRL_TERMINATE, &yes,
                           PMIX_BOOL);
        }
        AT("PMIx_Job_control of another rank");
        status = PMIx_Job_control(&victim, 1, &info, 1, &results, &nresults);
        if (status == PMIX_ERR_NOT_SUPPORTED && strcmp(argv[1], "terminate") == 0) {
            /* Some launchers do not support PMIX_JOB_CTRL_TERMINATE. */
            PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_KILL, &yes, PMIX_BOOL);
            status = PMIx_Job_control(&victim, 1, &info, 1, &results, &nresults);
        }
        CHECK_EITHER(status, PMIX_SUCCESS, PMIX_OPERATION_SUCCEEDED);
    }
    for (pmix_rank_t rank = 0; rank + 1 < job_size; rank++) {
        living[rank] = peer(rank);
    }
    CHECK_OK(PMIx_Fence(living, job_size - 1, NULL, 0));
    passed();
    return finish();
}
