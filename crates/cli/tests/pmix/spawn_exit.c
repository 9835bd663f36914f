/* The job-end event contains the exit code of a spawned job: one that exits
 * with 0, one that exits with 7, one that is killed. The spawner continues.
 * run: 1 -- keep-going => any
 */
#include "spawn.h"

static int child(const char *how)
{
    start();
    if (strcmp(how, "well") == 0) {
        return finish();
    }
    if (strcmp(how, "killed") == 0) {
        kill(getpid(), SIGKILL);
    }
    CHECK_OK(PMIx_Finalize(NULL, 0));
    return 7;
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
    spawn_self(1, "child", "well", children);
    end = wait_job_end(children);
    CHECK(end.has_status);
    CHECK_NUMBER(end.status, 0);

    spawn_self(2, "child", "seven", children);
    end = wait_job_end(children);
    CHECK(end.has_status);
    CHECK_NUMBER(end.status, 7);

    spawn_self(1, "child", "killed", children);
    end = wait_job_end(children);
    CHECK(end.has_status);
    CHECK(end.status != 0);
    fence();
    passed();
    return finish();
}
