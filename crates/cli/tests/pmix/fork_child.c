/* The program forks before it initializes PMIx, and the child becomes the
 * client, as with a shell script around an MPI program.
 * run: 2
 * nodes: 2
 */
#include "check.h"

int main(void)
{
    int status = 0;
    pid_t child = fork();

    if (child == 0) {
        start();
        put_number(PMIX_GLOBAL, "grandchild", me.rank);
        CHECK_OK(PMIx_Commit());
        fence_data();
        for (pmix_rank_t rank = 0; rank < job_size; rank++) {
            pmix_proc_t other = peer(rank);
            CHECK_NUMBER(number_of(&other, "grandchild"), rank);
        }
        return finish();
    }
    if (waitpid(child, &status, 0) != child) {
        return 2;
    }
    return WIFEXITED(status) ? WEXITSTATUS(status) : 3;
}
