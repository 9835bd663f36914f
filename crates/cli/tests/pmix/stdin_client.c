/* Standard input goes to rank 0 as it is, though it is a PMIx client; the other
 * ranks have none. The harness writes three lines and closes.
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
