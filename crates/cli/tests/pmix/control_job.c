/* One rank has its whole job killed (no target named): the launcher ends
 * and leaves nobody behind.
 * run: 3 => any
 * not: 3 (it needs what came later)
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
