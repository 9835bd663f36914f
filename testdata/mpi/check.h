/* Shared by the programs here. A program that finds an error prints its location and exits with 1. */
#ifndef CHECK_H
#define CHECK_H

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(condition)                                                              \
    do {                                                                              \
        if (!(condition)) {                                                           \
            fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
            exit(1);                                                                  \
        }                                                                             \
    } while (0)

static inline int rank_in(MPI_Comm comm)
{
    int rank;
    CHECK(MPI_Comm_rank(comm, &rank) == MPI_SUCCESS);
    return rank;
}

static inline int size_of(MPI_Comm comm)
{
    int size;
    CHECK(MPI_Comm_size(comm, &size) == MPI_SUCCESS);
    return size;
}

/* Prints the text once, when all members have reached this point. */
static inline void say(MPI_Comm comm, const char *text)
{
    CHECK(MPI_Barrier(comm) == MPI_SUCCESS);
    if (rank_in(comm) == 0) {
        puts(text);
        fflush(stdout);
    }
}

#endif
