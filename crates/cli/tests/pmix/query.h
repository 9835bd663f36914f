/* One query of one key, with or without qualifiers. */
#ifndef QUERY_H
#define QUERY_H

#include "check.h"

/* The caller frees the results with PMIX_INFO_FREE. */
MAYBE_UNUSED static pmix_status_t ask(const char *key, pmix_info_t *qualifiers, size_t nqual, pmix_info_t **results,
                                      size_t *count)
{
    pmix_query_t *query;
    pmix_status_t status;

    *results = NULL;
    *count = 0;
    check_what = key;
    PMIX_QUERY_CREATE(query, 1);
    query->keys = calloc(2, sizeof(char *));
    query->keys[0] = strdup(key);
    if (nqual > 0) {
        PMIX_INFO_CREATE(query->qualifiers, nqual);
        for (size_t i = 0; i < nqual; i++) {
            PMIX_INFO_XFER(&query->qualifiers[i], &qualifiers[i]);
        }
        query->nqual = nqual;
    }
    status = PMIx_Query_info(query, 1, results, count);
    PMIX_QUERY_FREE(query, 1);
    return status;
}

#endif
