/* One file, written by all ranks simultaneously and read by other ranks: at offsets, through interleaved views, in rank order. */
#include "check.h"

enum { COUNT = 1000 };

static MPI_File opened(const char *name, int mode)
{
    MPI_File file;
    CHECK(MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    return file;
}

int main(int argc, char **argv)
{
    int out[COUNT], in[COUNT], got;
    MPI_Status status;
    MPI_Datatype column;
    MPI_Offset length;
    MPI_Init(&argc, &argv);
    int rank = rank_in(MPI_COMM_WORLD), size = size_of(MPI_COMM_WORLD), next = (rank + 1) % size;
    for (int i = 0; i < COUNT; i++)
        out[i] = rank * COUNT + i;

    MPI_File file = opened("data", MPI_MODE_CREATE | MPI_MODE_RDWR);
    CHECK(MPI_File_write_at_all(file, sizeof(int) * COUNT * rank, out, COUNT, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_Get_count(&status, MPI_INT, &got) == MPI_SUCCESS && got == COUNT);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    CHECK(MPI_File_read_at(file, sizeof(int) * COUNT * next, in, COUNT, MPI_INT, &status) == MPI_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        CHECK(in[i] == next * COUNT + i);
    CHECK(MPI_File_get_size(file, &length) == MPI_SUCCESS && length == (MPI_Offset)sizeof(int) * COUNT * size);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "at offsets: right");

    /* Rank r has the integers r, r + size, r + 2 * size, ... */
    CHECK(MPI_Type_vector(COUNT, 1, size, MPI_INT, &column) == MPI_SUCCESS);
    MPI_Type_commit(&column);
    file = opened("data", MPI_MODE_RDWR);
    CHECK(MPI_File_set_view(file, sizeof(int) * rank, MPI_INT, column, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_write_all(file, out, COUNT, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    MPI_Type_free(&column);
    file = opened("data", MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE);
    CHECK(MPI_File_read_at_all(file, sizeof(int) * COUNT * next, in, COUNT, MPI_INT, &status) == MPI_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        int cell = next * COUNT + i;
        CHECK(in[i] == cell % size * COUNT + cell / size);
    }
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "through views: right");

    /* A shared file pointer. */
    file = opened("ordered", MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE);
    CHECK(MPI_File_write_ordered(file, out, 1 + rank, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_File_seek(file, sizeof(int) * (rank * (rank + 1) / 2), MPI_SEEK_SET) == MPI_SUCCESS);
    CHECK(MPI_File_read(file, in, 1 + rank, MPI_INT, &status) == MPI_SUCCESS);
    for (int i = 0; i <= rank; i++)
        CHECK(in[i] == rank * COUNT + i);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "in order: right");
    MPI_Finalize();
    return 0;
}
