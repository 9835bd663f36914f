/* Files and directories registered for clean-up exist while the rank runs, and
 * are gone after the launcher has exited. The harness passes a directory and
 * checks it afterwards: only the file "stays" may remain.
 * run: 2 DIRECTORY finalized => any
 * run: 2 DIRECTORY killed => any
 * nodes: 2 DIRECTORY killed => any
 * not: 3 (uses features of later versions)
 */
#include "check.h"

#include <fcntl.h>
#include <sys/stat.h>

static void make_file(const char *path)
{
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    CHECK(file >= 0);
    close(file);
}

static void request(const char *key, const char *path, bool recursive)
{
    pmix_info_t info[2], *results = NULL;
    size_t nresults = 0;

    PMIX_INFO_LOAD(&info[0], key, path, PMIX_STRING);
    PMIX_INFO_LOAD(&info[1], PMIX_CLEANUP_RECURSIVE, &recursive, PMIX_BOOL);
    CHECK_EITHER(PMIx_Job_control(&me, 1, info, recursive ? 2 : 1, &results, &nresults), PMIX_SUCCESS,
                 PMIX_OPERATION_SUCCEEDED);
}

int main(int argc, char **argv)
{
    char file[4096], directory[4096], inner[4200], stays[4096];

    start();
    CHECK(argc == 3);
    snprintf(file, sizeof(file), "%s/file-%u", argv[1], me.rank);
    snprintf(directory, sizeof(directory), "%s/directory-%u", argv[1], me.rank);
    snprintf(inner, sizeof(inner), "%s/inner", directory);
    snprintf(stays, sizeof(stays), "%s/stays", argv[1]);
    make_file(file);
    make_file(stays);
    CHECK(mkdir(directory, 0700) == 0);
    make_file(inner);
    request(PMIX_REGISTER_CLEANUP, file, false);
    request(PMIX_REGISTER_CLEANUP_DIR, directory, true);
    fence();
    CHECK(access(file, F_OK) == 0 && access(inner, F_OK) == 0);
    passed();
    fence();
    if (strcmp(argv[2], "killed") == 0 && me.rank == 1) {
        kill(getpid(), SIGKILL);
    }
    return finish();
}
