/* PMIx: initialize, a fence of all ranks, finalize. */
#include <pmix.h>
#include <stdio.h>

int main(void)
{
    pmix_proc_t me;

    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS) {
        return 1;
    }
    if (PMIx_Fence(NULL, 0, NULL, 0) != PMIX_SUCCESS) {
        return 2;
    }
    return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 3;
}
