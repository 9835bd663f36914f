/* Checks: a program prints nothing if all succeed; if one fails, it prints the location and exits with 1. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHECK(is)                                                   \
    do {                                                            \
        if (!(is)) {                                                \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #is); \
            exit(1);                                                \
        }                                                           \
    } while (0)

#define CHECK_TEXT(got, expected)                                                                  \
    do {                                                                                           \
        if (strcmp(got, expected) != 0) {                                                          \
            fprintf(stderr, "%s:%d: `%s` and not `%s`\n", __FILE__, __LINE__, (got), (expected)); \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
