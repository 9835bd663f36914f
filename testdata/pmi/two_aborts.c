/* A rank aborts the job by PMI-2 while another rank waits for it. */
#include "check.h"
#include "pmi2.h"

int main(void)
{
    int spawned, size, rank, appnum;

    CHECK(PMI2_Init(&spawned, &size, &rank, &appnum) == PMI2_SUCCESS);
    if (rank == 1)
        PMI2_Abort(1, "the ice is thin");
    PMI2_KVS_Fence();
    pause();
    return 0;
}
