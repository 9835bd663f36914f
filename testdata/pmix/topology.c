/* Prints the topology that the server sends, as XML of hwloc. */
#include <pmix.h>
#include <stdio.h>

int main(void)
{
    pmix_proc_t me, all;
    pmix_value_t *value = NULL;

    if (PMIx_Init(&me, NULL, 0) != PMIX_SUCCESS) {
        return 1;
    }
    PMIX_LOAD_PROCID(&all, me.nspace, PMIX_RANK_WILDCARD);
    if (PMIx_Get(&all, "pmix.hwlocxml2", NULL, 0, &value) != PMIX_SUCCESS || value->type != PMIX_STRING) {
        return 2;
    }
    fputs(value->data.string, stdout);
    return PMIx_Finalize(NULL, 0) == PMIX_SUCCESS ? 0 : 3;
}
