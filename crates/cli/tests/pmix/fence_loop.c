/* A thousand fences in a row, every tenth with data.
 * run: 2
 * run: 6
 */
#include "check.h"

int main(void)
{
    start();
    for (int i = 0; i < 1000; i++) {
        if (i % 10 == 0) {
            fence_data();
        } else {
            fence();
        }
    }
    return finish();
}
