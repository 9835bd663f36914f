/* Sleeps in a library that was loaded at run time; with -DPLUGIN this file is that library. */
#include <dlfcn.h>
#include <stdio.h>
#include <unistd.h>

#ifdef PLUGIN
__attribute__((noinline)) static void within(void) {
    printf("ready\n");
    fflush(stdout);
    sleep(1000);
}

int plugin(void) {
    within();
    return 1;
}
#else
int main(int argc, char **argv) {
    (void)argc;
    void *library = dlopen(argv[1], RTLD_NOW);
    if (!library) {
        puts(dlerror());
        return 1;
    }
    int (*function)(void) = (int (*)(void))dlsym(library, "plugin");
    return function();
}
#endif
