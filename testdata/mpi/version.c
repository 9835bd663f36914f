/* Prints the version of the library at run time. */
#include "check.h"

int main(int argc, char **argv)
{
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length;
    CHECK(MPI_Get_library_version(text, &length) == MPI_SUCCESS);
    puts(text);
    MPI_Init(&argc, &argv);
    MPI_Finalize();
    return 0;
}
