/* Prints the names of the process sets that are not built into the library. */
#include "check.h"

int main(void)
{
    MPI_Session session;
    char name[MPI_MAX_PSET_NAME_LEN];
    int length = sizeof(name);

    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    /* Open MPI 5.0 counts only those that are built in, and finds the others. */
    for (int n = 0; MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &length, name) == MPI_SUCCESS; n++) {
        if (strstr(name, "://") == NULL) {
            printf("set %s\n", name);
        }
        length = sizeof(name);
    }
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS);
    return 0;
}
