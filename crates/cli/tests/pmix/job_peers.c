/* Known about other ranks without any data exchange: the node and the ranks
 * within node and application. Each such rank is assigned exactly once.
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_proc_t all;
    uint32_t nodes, *on_node;
    uint64_t *taken;
    char *peers, *cursor, *part;
    uint32_t local = 0;

    start();
    all = peer(PMIX_RANK_WILDCARD);
    nodes = (uint32_t)number_of(&all, PMIX_NUM_NODES);
    CHECK(job_size <= 64);
    on_node = calloc(nodes, sizeof(*on_node));
    taken = calloc(nodes, sizeof(*taken));

    for (pmix_rank_t rank = 0; rank < job_size; rank++) {
        pmix_proc_t other = peer(rank);
        char *host = text_of(&other, PMIX_HOSTNAME);
        uint32_t node = (uint32_t)node_of(&other);

        CHECK(node < nodes);
        CHECK(number_of(&other, PMIX_LOCAL_RANK) < job_size);
        on_node[node]++;
        taken[node] |= UINT64_C(1) << number_of(&other, PMIX_LOCAL_RANK);
        CHECK_NUMBER(number_of(&other, PMIX_GLOBAL_RANK), rank);
        CHECK_NUMBER(number_of(&other, PMIX_APP_RANK), rank);
        CHECK_NUMBER(number_of(&other, PMIX_APPNUM), 0);
        CHECK(strlen(host) > 0);
        free(host);
    }
    CHECK_NUMBER(on_node[number_of(&me, PMIX_NODEID)], number_of(&all, PMIX_LOCAL_SIZE));
    for (uint32_t node = 0; node < nodes; node++) {
        CHECK_NUMBER(taken[node], (UINT64_C(1) << on_node[node]) - 1);
    }

    /* The local peers are exactly the ranks that report this node as theirs. */
    peers = text_of(&all, PMIX_LOCAL_PEERS);
    for (part = strtok_r(peers, ",", &cursor); part != NULL; part = strtok_r(NULL, ",", &cursor)) {
        pmix_proc_t other = peer((pmix_rank_t)strtoul(part, NULL, 10));
        CHECK_NUMBER(number_of(&other, PMIX_NODEID), number_of(&me, PMIX_NODEID));
        local++;
    }
    CHECK_NUMBER(local, number_of(&all, PMIX_LOCAL_SIZE));
    free(peers);
    free(on_node);
    free(taken);
    return finish();
}
