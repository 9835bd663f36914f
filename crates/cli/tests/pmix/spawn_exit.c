/* The job-end event contains the exit code of a spawned job: one that exits
 * with 0, one whose second rank exits with 7, one whose second rank is killed.
 * The spawner continues.
 * run: 1 -- keep-going => any
 * nodes: 1 -- keep-going => any
 */
#include "spawn.h"

static int child(const char *how)
{
    start();
    if (strcmp(how, "well") == 0 || me.rank == 0) {
        return finish();
    }
    if (strcmp(how, "killed") == 0) {
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(PMIx_Finalize(NULL, 0));
    return 7;
}

/* Of several nodes, the second child is on another one. */
static void spawn_two(const char *how, pmix_nspace_t children)
{
    pmix_info_t directive;
    pmix_app_t app;

    self_app(&app, 2, "child", how);
    map_by_node(&directive);
    CHECK_OK(PMIx_Spawn(&directive, 1, &app, 1, children));
}

int main(int argc, char **argv)
{
    pmix_nspace_t children;
    struct ended end;

    if (argc == 3) {
        return child(argv[2]);
    }
    start();
    watch_job_ends();
    spawn_two("well", children);
    end = wait_job_end(children);
    CHECK(end.has_status);
    CHECK_NUMBER(end.status, 0);

    spawn_two("seven", children);
    end = wait_job_end(children);
    CHECK(end.has_status);
    CHECK_NUMBER(end.status, 7);

    spawn_two("killed", children);
    end = wait_job_end(children);
    CHECK(end.has_status);
    CHECK(end.status != 0);
    fence();
    passed();
    return finish();
}
