/* A request for more resources is refused explicitly and promptly.
 * run: 1
 */
#include "check.h"

int main(void)
{
    pmix_info_t info, *results = NULL;
    size_t nresults = 0;
    uint64_t nodes = 4;

    start();
    PMIX_INFO_LOAD(&info, PMIX_ALLOC_NUM_NODES, &nodes, PMIX_UINT64);
    CHECK_ERROR(PMIx_Allocation_request(PMIX_ALLOC_NEW, &info, 1, &results, &nresults));
    CHECK_ERROR(PMIx_Allocation_request(PMIX_ALLOC_EXTEND, &info, 1, &results, &nresults));
    fence();
    return finish();
}
