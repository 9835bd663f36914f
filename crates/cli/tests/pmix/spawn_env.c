/* What a spawned process gets: unchanged arguments, additional variables, a
 * working directory, and its own PMIx name.
 * run: 1
 */
#include "spawn.h"

static int child(int argc, char **argv)
{
    char here[4096];

    start();
    CHECK_NUMBER(argc, 3);
    CHECK_TEXT(argv[2], "two words; $HOME 'quoted' \"twice\" *");
    CHECK_TEXT(getenv("SPAWN_TEST_APP"), "of the app = with signs");
    CHECK_TEXT(getenv("SPAWN_TEST_SET"), "set");
    CHECK_TEXT(getenv("PMIX_NAMESPACE"), me.nspace);
    CHECK(getcwd(here, sizeof(here)) != NULL);
    CHECK_TEXT(here, "/usr");
    return finish();
}

int main(int argc, char **argv)
{
    pmix_app_t app;
    pmix_envar_t set = {"SPAWN_TEST_SET", "set", '\0'};
    pmix_nspace_t children;
    size_t count = 0;
    char **env;

    if (argc > 1) {
        return child(argc, argv);
    }
    start();
    watch_job_ends();
    self_app(&app, 1, "child", "two words; $HOME 'quoted' \"twice\" *");
    env = calloc(4, sizeof(char *));
    if (app.env != NULL) {
        env[count++] = app.env[0];
    }
    env[count] = strdup("SPAWN_TEST_APP=of the app = with signs");
    free(app.env);
    app.env = env;
    app.cwd = strdup("/usr");
    app.ninfo = 1;
    PMIX_INFO_CREATE(app.info, 1);
    PMIX_INFO_LOAD(&app.info[0], PMIX_SET_ENVAR, &set, PMIX_ENVAR);
    CHECK_OK(PMIx_Spawn(NULL, 0, &app, 1, children));
    CHECK_NUMBER(wait_job_end(children).status, 0);
    return finish();
}
