/* Opens and closes several sessions one after another, then calls MPI_Init. */
#include "check.h"

static void use(const char *name)
{
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    CHECK(MPI_Group_from_session_pset(session, "mpi://WORLD", &group) == MPI_SUCCESS);
    CHECK(MPI_Comm_create_from_group(group, name, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
    int mine = rank_in(comm) + 1, sum = 0, size = size_of(comm);
    CHECK(MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(sum == size * (size + 1) / 2);
    say(comm, name);
    MPI_Comm_free(&comm);
    MPI_Group_free(&group);
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS);
}

int main(int argc, char **argv)
{
    use("first session");
    use("second session");
    CHECK(MPI_Init(&argc, &argv) == MPI_SUCCESS);
    say(MPI_COMM_WORLD, "the world");
    MPI_Finalize();
    return 0;
}
