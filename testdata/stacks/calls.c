/* Sleeps a few calls deep; with WAIT set to "spin" it runs a loop instead. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

volatile long turns;

static inline __attribute__((always_inline)) void inlined(int spin) {
    printf("ready\n");
    fflush(stdout);
    for (;;) {
        if (spin) {
            turns++;
        } else {
            sleep(1000);
        }
    }
}

__attribute__((noinline)) static int leaf(int depth, int spin) {
    char room[depth + 100];
    memset(room, depth, sizeof room);
    inlined(spin);
    return room[depth];
}

__attribute__((noinline)) static int middle(int depth, int spin) {
    if (depth > 0) {
        return middle(depth - 1, spin) + 1;
    }
    return leaf(depth, spin) + 1;
}

__attribute__((noinline)) int outer(int depth, int spin) {
    return middle(depth, spin) + 1;
}

int main(int argc, char **argv) {
    return outer(argc > 1 ? atoi(argv[1]) : 2, argc > 2 && strcmp(argv[2], "spin") == 0);
}
