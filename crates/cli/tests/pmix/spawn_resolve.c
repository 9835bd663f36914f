/* After a connect with spawned processes, parents and children find each other
 * by PMIx_Resolve_peers and PMIx_Resolve_nodes.
 * run: 2
 * nodes: 2
 */
#include "spawn.h"

static void expect_peers(const char *nspace, size_t at_most)
{
    pmix_nspace_t name;
    pmix_proc_t *procs = NULL;
    size_t count = 0;
    char *nodes = NULL, *host = text_of(&me, PMIX_HOSTNAME);

    PMIX_LOAD_NSPACE(name, nspace);
    CHECK_OK(PMIx_Resolve_nodes(name, &nodes));
    CHECK(nodes != NULL && strlen(nodes) > 0);
    if (strstr(nodes, host) != NULL) {
        CHECK_OK(PMIx_Resolve_peers(host, name, &procs, &count));
        CHECK(count >= 1 && count <= at_most);
        CHECK_TEXT(procs[0].nspace, nspace);
        PMIX_PROC_FREE(procs, count);
    }
    free(nodes);
    free(host);
}

int main(int argc, char **argv)
{
    pmix_proc_t both[2], parent, first;
    pmix_nspace_t children;
    char *name;

    (void)argv;
    start();
    if (argc > 1) {
        parent = parent_of_mine();
        PMIX_LOAD_PROCID(&both[0], parent.nspace, PMIX_RANK_WILDCARD);
        both[1] = peer(PMIX_RANK_WILDCARD);
        CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
        expect_peers(parent.nspace, 2);
        expect_peers(me.nspace, 3);
        CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
        return finish();
    }
    first = peer(0);
    if (me.rank == 0) {
        spawn_self(3, "child", NULL, children);
        put_text(PMIX_GLOBAL, "children", children);
        CHECK_OK(PMIx_Commit());
    }
    fence_data();
    name = text_of(&first, "children");
    both[0] = peer(PMIX_RANK_WILDCARD);
    PMIX_LOAD_PROCID(&both[1], name, PMIX_RANK_WILDCARD);
    CHECK_OK(PMIx_Connect(both, 2, NULL, 0));
    expect_peers(name, 3);
    expect_peers(me.nspace, 2);
    CHECK_OK(PMIx_Disconnect(both, 2, NULL, 0));
    free(name);
    return finish();
}
