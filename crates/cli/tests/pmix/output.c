/* Ordinary output of ranks that are clients, much of it, to both streams, while
 * they fence: the harness counts the lines (100 per rank and stream, each whole).
 * run: 4 => any
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
