/*
 * One-sided operations: put, get and accumulate between fences, counters and exchange under locks, shared memory. With
 * the argument `apart`, ranks are on several nodes and have no shared memory; a number after it is that of the rounds
 * under locks.
 */
#include "check.h"
#include <unistd.h>

static void fences(int rank, int size)
{
    int *cells, got = -1, one = 1;
    MPI_Win win;
    CHECK(MPI_Win_allocate(sizeof(int) * (size + 1), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &cells, &win)
          == MPI_SUCCESS);
    for (int i = 0; i <= size; i++)
        cells[i] = 0;
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    for (int to = 0; to < size; to++) {
        int value = 100 * rank + to;
        CHECK(MPI_Put(&value, 1, MPI_INT, to, rank, 1, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Accumulate(&one, 1, MPI_INT, to, size, 1, MPI_INT, MPI_SUM, win) == MPI_SUCCESS);
        /* The library uses `value` until the fence. */
        CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    }
    for (int from = 0; from < size; from++)
        CHECK(cells[from] == 100 * from + rank);
    CHECK(cells[size] == size);
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    CHECK(MPI_Get(&got, 1, MPI_INT, (rank + 1) % size, rank, 1, MPI_INT, win) == MPI_SUCCESS);
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    CHECK(got == 100 * rank + (rank + 1) % size);
    CHECK(MPI_Win_free(&win) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "fences: right");
}

static void locks(int rank, int size, int rounds)
{
    int cells[3] = {0, 0, -1}, one = 1, got, sum = 0, all = 0, free_is = -1, held = 0;
    MPI_Win win;
    CHECK(MPI_Win_create(cells, sizeof cells, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win) == MPI_SUCCESS);
    for (int i = 0; i < rounds; i++) {
        /* Under an exclusive lock no other rank accesses the cell between the get and the put. */
        CHECK(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win) == MPI_SUCCESS);
        CHECK(MPI_Get(&got, 1, MPI_INT, 0, 0, 1, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Win_flush(0, win) == MPI_SUCCESS);
        got++;
        CHECK(MPI_Put(&got, 1, MPI_INT, 0, 0, 1, MPI_INT, win) == MPI_SUCCESS);
        CHECK(MPI_Win_unlock(0, win) == MPI_SUCCESS);
        CHECK(MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win) == MPI_SUCCESS);
        CHECK(MPI_Fetch_and_op(&one, &got, MPI_INT, 0, 1, MPI_SUM, win) == MPI_SUCCESS);
        CHECK(MPI_Win_unlock(0, win) == MPI_SUCCESS);
        sum += got;
    }
    /* The ranks take one token in turn. Those that wait leave the processors, which many ranks may share, to others. */
    CHECK(MPI_Win_lock_all(0, win) == MPI_SUCCESS);
    for (;;) {
        CHECK(MPI_Compare_and_swap(&rank, &free_is, &got, MPI_INT, 0, 2, win) == MPI_SUCCESS);
        CHECK(MPI_Win_flush(0, win) == MPI_SUCCESS);
        if (got == free_is)
            break;
        usleep(1000);
    }
    CHECK(MPI_Compare_and_swap(&free_is, &rank, &held, MPI_INT, 0, 2, win) == MPI_SUCCESS);
    CHECK(MPI_Win_flush(0, win) == MPI_SUCCESS);
    CHECK(held == rank);
    CHECK(MPI_Win_unlock_all(win) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_Win_lock(MPI_LOCK_SHARED, rank, 0, win) == MPI_SUCCESS);
    if (rank == 0)
        CHECK(cells[0] == size * rounds && cells[1] == size * rounds && cells[2] == -1);
    CHECK(MPI_Win_unlock(rank, win) == MPI_SUCCESS);
    /* Every value of the counter was fetched exactly once. */
    MPI_Allreduce(&sum, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(all == size * rounds * (size * rounds - 1) / 2);
    CHECK(MPI_Win_free(&win) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "locks: right");
}

static void shared(int rank, int size)
{
    MPI_Comm node;
    MPI_Win win;
    MPI_Aint bytes;
    int *own, *other, unit;
    CHECK(MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node) == MPI_SUCCESS);
    /* All ranks run on one node, and the library recognizes that. */
    CHECK(size_of(node) == size);
    CHECK(MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node, &own, &win) == MPI_SUCCESS);
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    *own = 7 * rank;
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    CHECK(MPI_Win_shared_query(win, (rank + 1) % size, &bytes, &unit, &other) == MPI_SUCCESS);
    CHECK(*other == 7 * ((rank + 1) % size));
    CHECK(MPI_Win_fence(0, win) == MPI_SUCCESS);
    CHECK(MPI_Win_free(&win) == MPI_SUCCESS);
    MPI_Comm_free(&node);
    say(MPI_COMM_WORLD, "shared memory: right");
}

int main(int argc, char **argv)
{
    MPI_Init(&argc, &argv);
    int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD);
    fences(rank, size);
    locks(rank, size, argc > 2 ? atoi(argv[2]) : 15);
    if (argc == 1)
        shared(rank, size);
    MPI_Finalize();
    return 0;
}
