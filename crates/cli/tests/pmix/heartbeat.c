/* Heartbeats that nobody asked for are harmless: there is no answer to them,
 * and the connection goes on.
 * run: 2
 */
#include "check.h"

int main(void)
{
    start();
    for (int i = 0; i < 1000; i++) {
        PMIx_Heartbeat();
    }
    fence();
    return finish();
}
