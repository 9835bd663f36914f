/* Spawns two processes that each print a line and sleep; then does the same itself. */
#include <pmix.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

int main(void)
{
    char *argv[] = {"sh", "-c", "echo child ready; exec sleep 1000", NULL};
    pmix_nspace_t nspace;
    pmix_proc_t me;
    pmix_app_t app;

    PMIX_APP_CONSTRUCT(&app);
    app.cmd = strdup("/bin/sh");
    app.argv = argv;
    app.maxprocs = 2;
    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS || PMIx_Spawn(NULL, 0, &app, 1, nspace) != PMIX_SUCCESS) {
        return 1;
    }
    puts("parent ready");
    fflush(stdout);
    for (;;) {
        pause();
    }
}
