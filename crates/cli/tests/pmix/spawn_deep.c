/* A chain of spawns: each child spawns the next one and waits for it.
 * run: 2
 * nodes: 2
 */
#include "spawn.h"

int main(int argc, char **argv)
{
    unsigned depth = argc == 3 ? (unsigned)strtoul(argv[2], NULL, 10) : 0;
    pmix_nspace_t children;
    char number[16];

    start();
    if (depth > 0) {
        pmix_proc_t parent = parent_of_mine();
        CHECK_NUMBER(parent.rank, 0);
    }
    if (depth < 3 && me.rank == 0) {
        watch_job_ends();
        snprintf(number, sizeof(number), "%u", depth + 1);
        spawn_self(2, "child", number, children);
        CHECK_NUMBER(wait_job_end(children).status, 0);
    }
    fence();
    return finish();
}
