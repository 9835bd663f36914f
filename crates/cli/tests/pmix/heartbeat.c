/* Unrequested heartbeats are harmless: the server does not answer them and
 * keeps the connection open.
 * run: 2
 * nodes: 2
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
