/* A lookup that waits for a key that is never published ends by its timeout.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    pmix_info_t info[2];
    pmix_pdata_t found;
    int all = 0, seconds = 1;

    start();
    PMIX_INFO_LOAD(&info[0], PMIX_WAIT, &all, PMIX_INT);
    PMIX_INFO_LOAD(&info[1], PMIX_TIMEOUT, &seconds, PMIX_INT);
    PMIX_PDATA_CONSTRUCT(&found);
    PMIX_LOAD_KEY(found.key, "never-published");
    CHECK_EITHER(PMIx_Lookup(&found, 1, info, 2), PMIX_ERR_TIMEOUT, PMIX_ERR_NOT_FOUND);
    fence();
    return finish();
}
