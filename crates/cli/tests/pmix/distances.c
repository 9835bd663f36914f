/* The topology of the node, the CPUs of the process, and the distances of
 * devices from them. No device, no support and no binding are all accepted.
 * run: 2
 * nodes: 2
 * not: 3 (uses features of later versions)
 */
#include "check.h"

int main(void)
{
    pmix_topology_t topology;
    pmix_cpuset_t cpuset;
    pmix_device_distance_t *distances = NULL;
    size_t count = 0;
    pmix_status_t status;

    start();
    PMIX_TOPOLOGY_CONSTRUCT(&topology);
    PMIX_CPUSET_CONSTRUCT(&cpuset);
    CHECK_OK(PMIx_Load_topology(&topology));
    CHECK(topology.topology != NULL);
    AT("PMIx_Get_cpuset");
    status = PMIx_Get_cpuset(&cpuset, PMIX_CPUBIND_PROCESS);
    if (status == PMIX_SUCCESS) {
        AT("PMIx_Compute_distances");
        status = PMIx_Compute_distances(&topology, &cpuset, NULL, 0, &distances, &count);
        /* Up to 5.0.11, when the library asks the server, it mistakes the
         * length of the list of CPUs for an error. */
        CHECK(status == PMIX_SUCCESS || status == PMIX_ERR_NOT_SUPPORTED || status == PMIX_ERR_NOT_FOUND ||
              status == PMIX_ERROR);
    }
    fence();
    return finish();
}
