/* Standard input reaches rank 0 unchanged, although it is a PMIx client; the
 * other ranks get none. The harness writes three lines and closes the pipe.
 * run: 2 => any
 */
#include "check.h"

int main(void)
{
    char line[256];
    int lines = 0;

    start();
    AT("read of standard input up to its end");
    while (fgets(line, sizeof(line), stdin) != NULL) {
        lines++;
    }
    CHECK(me.rank == 0 || lines == 0);
    printf("rank %u read %d lines\n", me.rank, lines);
    fflush(stdout);
    fence();
    passed();
    return finish();
}
