/* Job control that few launchers support: checkpoint, pause and preemption. The
 * result is success or PMIX_ERR_NOT_SUPPORTED, and the job continues.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "check.h"

static void try(const char *key, const void *value, pmix_data_type_t type)
{
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;
    pmix_status_t status;

    check_what = key;
    PMIX_INFO_LOAD(&info, key, value, type);
    status = PMIx_Job_control(NULL, 0, &info, 1, &results, &nresults);
    if (status != PMIX_SUCCESS && status != PMIX_ERR_NOT_SUPPORTED && status != PMIX_OPERATION_SUCCEEDED) {
        FAIL("%s: expected success or PMIX_ERR_NOT_SUPPORTED, got %s (%d)", key, PMIx_Error_string(status), status);
    }
}

int main(void)
{
    bool yes = true;

    start();
    try(PMIX_JOB_CTRL_PREEMPTIBLE, &yes, PMIX_BOOL);
    try(PMIX_JOB_CTRL_CHECKPOINT_EVENT, &yes, PMIX_BOOL);
    try(PMIX_JOB_CTRL_RESTART, "checkpoint-1", PMIX_STRING);
    fence();
    return finish();
}
