/* One rank requests that its whole job be killed (no target given): the
 * launcher exits and no process of the job remains.
 * run: 3 => any
 * nodes: 3 => any
 * not: 3 (uses features of later versions)
 */
#include "check.h"

int main(void)
{
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;
    bool yes = true;

    start();
    fence();
    passed();
    fence();
    if (me.rank == 0) {
        PMIX_INFO_LOAD(&info, PMIX_JOB_CTRL_KILL, &yes, PMIX_BOOL);
        AT("PMIx_Job_control of the own job");
        (void)PMIx_Job_control(NULL, 0, &info, 1, &results, &nresults);
    }
    for (;;) {
        AT("wait to be killed");
        pause();
    }
}
