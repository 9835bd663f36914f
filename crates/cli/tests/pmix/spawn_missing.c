/* An impossible spawn returns a specific error, and the spawner continues: a
 * program that does not exist, one without execute permission, a directory.
 * run: 2 => any
 * nodes: 2 => any
 */
#include "spawn.h"

static void expect_error(const char *path, const char *directory)
{
    pmix_app_t app;
    pmix_nspace_t nspace;

    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup(path);
    app.maxprocs = 1;
    app.argv = calloc(2, sizeof(char *));
    app.argv[0] = strdup(path);
    if (directory != NULL) {
        app.cwd = strdup(directory);
    }
    memset(nspace, 0, sizeof(nspace));
    check_what = path;
    if (PMIx_Spawn(NULL, 0, &app, 1, nspace) == PMIX_SUCCESS) {
        FAIL("spawn of %s: expected an error, got PMIX_SUCCESS", path);
    }
    PMIX_APP_DESTRUCT(&app);
}

int main(void)
{
    start();
    if (me.rank == 0) {
        expect_error("/no/such/program", NULL);
        expect_error("no-such-program-anywhere", NULL);
        expect_error("/etc/passwd", NULL);
    }
    fence();
    passed();
    return finish();
}
