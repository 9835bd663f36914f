/* Input for processes of a spawned job: all of it arrives, in order, followed by
 * EOF. More bytes than a pipe holds are pushed before the reader starts to read.
 * Input for the caller's own job is refused, because it comes from the launcher.
 * run: 1
 * nodes: 1
 * not: 3, 6 (3 pushes nothing, 6.1 fails before it sends anything)
 */
#include "spawn.h"
#include <pmix_tool.h>

#define BLOCK 10000
#define BLOCKS 100

static void fill(char *block, int number)
{
    for (int i = 0; i < BLOCK; i++) {
        block[i] = (char) ('a' + (number * 7 + i) % 26);
    }
}

static void on_pushed(pmix_status_t status, void *cbdata)
{
    wake(cbdata, status);
}

/* The blocking form of the call hangs in some libraries. */
static pmix_status_t push(const pmix_proc_t *to, const pmix_byte_object_t *bytes, const pmix_info_t *info, size_t count)
{
    struct waiter pushed = WAITER;
    pmix_status_t status = PMIx_IOF_push(to, 1, (pmix_byte_object_t *) bytes, info, count, on_pushed, &pushed);

    return status == PMIX_SUCCESS ? wait_for(&pushed, 1) : status;
}

static int child(void)
{
    static char expected[BLOCK], block[BLOCK];

    start();
    fence();
    for (int number = 0; number < BLOCKS; number++) {
        fill(expected, number);
        CHECK_NUMBER(fread(block, 1, BLOCK, stdin), BLOCK);
        CHECK(memcmp(block, expected, BLOCK) == 0);
    }
    CHECK_NUMBER(getchar(), EOF);
    return finish();
}

int main(int argc, char **argv)
{
    static char block[BLOCK];
    pmix_nspace_t nspace;
    pmix_app_t app;
    pmix_info_t directives[2], end;
    pmix_proc_t readers, own;
    pmix_byte_object_t bytes = {block, BLOCK}, nothing = {NULL, 0};
    uint32_t all = PMIX_RANK_WILDCARD;
    bool yes = true;

    (void)argv;
    if (argc > 1) {
        return child();
    }
    start();
    watch_job_ends();
    self_app(&app, 2, "child", NULL);
    PMIX_INFO_LOAD(&directives[0], PMIX_STDIN_TGT, &all, PMIX_UINT32);
    map_by_node(&directives[1]);
    CHECK_OK(PMIx_Spawn(directives, 2, &app, 1, nspace));
    PMIX_LOAD_PROCID(&readers, nspace, PMIX_RANK_WILDCARD);
    for (int number = 0; number < BLOCKS; number++) {
        fill(block, number);
        CHECK_OK(push(&readers, &bytes, NULL, 0));
    }
    PMIX_INFO_LOAD(&end, PMIX_IOF_COMPLETE, &yes, PMIX_BOOL);
    CHECK_OK(push(&readers, &nothing, &end, 1));
    CHECK_NUMBER(wait_job_end(nspace).status, 0);
    own = peer(PMIX_RANK_WILDCARD);
    CHECK(push(&own, &bytes, NULL, 0) != PMIX_SUCCESS);
    return finish();
}
