/* PMIx_Log to a nonexistent channel returns an error and has no other effect.
 * run: 1
 */
#include "check.h"

int main(void)
{
    pmix_info_t data;

    start();
    PMIX_INFO_LOAD(&data, "no.such.channel", "lost", PMIX_STRING);
    AT("PMIx_Log to an unknown channel");
    (void)PMIx_Log(&data, 1, NULL, 0);
    fence();
    return finish();
}
