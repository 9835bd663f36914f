/* PMIx_Resolve_nodes and PMIx_Resolve_peers: for one node, for all nodes, and
 * for a nonexistent namespace.
 * run: 4
 * nodes: 4
 */
#include "check.h"

int main(void)
{
    pmix_proc_t all, *procs = NULL;
    size_t count = 0;
    char *host, *nodes = NULL, *known;
    bool seen[64] = {false};
    pmix_nspace_t stranger;

    start();
    CHECK(job_size <= 64);
    all = peer(PMIX_RANK_WILDCARD);
    host = text_of(&me, PMIX_HOSTNAME);
    known = text_of(&all, PMIX_NODE_LIST);

    CHECK_OK(PMIx_Resolve_nodes(me.nspace, &nodes));
    CHECK_TEXT(nodes, known);
    free(nodes);

    CHECK_OK(PMIx_Resolve_peers(host, me.nspace, &procs, &count));
    CHECK_NUMBER(count, number_of(&all, PMIX_LOCAL_SIZE));
    for (size_t i = 0; i < count; i++) {
        CHECK_TEXT(procs[i].nspace, me.nspace);
        CHECK(procs[i].rank < job_size);
        CHECK(!seen[procs[i].rank]);
        seen[procs[i].rank] = true;
        CHECK_NUMBER(number_of(&procs[i], PMIX_NODEID), number_of(&me, PMIX_NODEID));
    }
    CHECK(seen[me.rank]);
    PMIX_PROC_FREE(procs, count);

    /* Without a node: the caller's node, or all nodes. */
    if (library_at_least(5, 0, 0)) {
        CHECK_OK(PMIx_Resolve_peers(NULL, me.nspace, &procs, &count));
        CHECK(count >= (size_t)number_of(&all, PMIX_LOCAL_SIZE));
        PMIX_PROC_FREE(procs, count);
    }

    /* A nonexistent node and a nonexistent namespace. */
    count = 0;
    procs = NULL;
    pmix_status_t status = PMIx_Resolve_peers("no-such-node", me.nspace, &procs, &count);
    CHECK(status != PMIX_SUCCESS || count == 0);
    count = 0;
    procs = NULL;
    PMIX_LOAD_NSPACE(stranger, "no-such-namespace");
    status = PMIx_Resolve_peers(host, stranger, &procs, &count);
    CHECK(status != PMIX_SUCCESS || count == 0);

    free(host);
    free(known);
    return finish();
}
