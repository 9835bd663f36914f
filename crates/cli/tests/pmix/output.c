/* Much ordinary output of ranks that are clients, on both streams, while they
 * fence. The harness counts the lines (100 per rank and stream, none torn).
 * run: 4 => any
 * nodes: 4 => any
 */
#include "check.h"

int main(void)
{
    start();
    for (int i = 0; i < 100; i++) {
        printf("out rank=%u line=%d the quick brown fox jumps over the lazy dog\n", me.rank, i);
        fprintf(stderr, "err rank=%u line=%d the quick brown fox jumps over the lazy dog\n", me.rank, i);
        if (i % 10 == 0) {
            fflush(stdout);
            fence();
        }
    }
    fflush(stdout);
    fence();
    passed();
    return finish();
}
