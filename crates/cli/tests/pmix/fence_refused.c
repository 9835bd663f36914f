/* Invalid fences: a count without a list, which the library refuses, and a
 * nonexistent namespace, for which any status is accepted but a hang is not.
 * The next fence must work.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_proc_t stranger;
    pmix_info_t patience;
    int seconds = 2;

    start();
    CHECK_STATUS(PMIx_Fence(NULL, 3, NULL, 0), PMIX_ERR_BAD_PARAM);
    PMIX_LOAD_PROCID(&stranger, "no-such-namespace", PMIX_RANK_WILDCARD);
    PMIX_INFO_LOAD(&patience, PMIX_TIMEOUT, &seconds, PMIX_INT);
    AT("PMIx_Fence of a stranger");
    (void)PMIx_Fence(&stranger, 1, &patience, 1);
    fence();
    return finish();
}
