/* Is not linked with MPI: loads a plug-in that is, and calls it. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv) {
    int scope = strcmp(argv[2], "global") ? RTLD_LOCAL : RTLD_GLOBAL;
    int first = strcmp(argv[2], "deep") ? 0 : RTLD_DEEPBIND;
    void *plugin = dlopen(argv[1], RTLD_NOW | scope | first);
    if (!plugin) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    ((void (*)(void))dlsym(plugin, "work"))();
    return 0;
}
