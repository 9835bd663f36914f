/* One member leaves a group. A server may lack support for that, but must
 * answer, and the other members can still destruct the group.
 * run: 3
 * nodes: 3
 * not: 3,4.2.9,5,6 (3 has no groups; the others crash on any answer)
 */
#include "group.h"

int main(void)
{
    pmix_proc_t members[3];
    pmix_status_t status = PMIX_SUCCESS;

    start();
    CHECK_NUMBER(job_size, 3);
    for (pmix_rank_t rank = 0; rank < 3; rank++) {
        members[rank] = peer(rank);
    }
    construct("left", members, 3);
    if (me.rank == 2) {
        AT("PMIx_Group_leave");
        status = PMIx_Group_leave("left", NULL, 0);
        if (status != PMIX_SUCCESS && status != PMIX_ERR_NOT_SUPPORTED && status != PMIX_ERR_NOT_FOUND) {
            FAIL("PMIx_Group_leave: expected success or PMIX_ERR_NOT_SUPPORTED, got %s", PMIx_Error_string(status));
        }
    }
    fence();
    return finish();
}
