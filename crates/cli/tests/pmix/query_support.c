/* The features that the launcher reports: attributes of spawns and for debuggers.
 * run: 1
 * not: 3 (uses features of later versions)
 */
#include "query.h"

static void expect_mention(const char *key, const char *attribute)
{
    pmix_info_t *results = NULL;
    size_t count = 0;
    const pmix_value_t *value;

    CHECK_OK(ask(key, NULL, 0, &results, &count));
    value = value_among(results, count, key);
    CHECK(value != NULL);
    CHECK_TYPE(value, PMIX_STRING);
    if (strstr(value->data.string, attribute) == NULL) {
        FAIL("%s: expected %s in the list, got \"%s\"", key, attribute, value->data.string);
    }
    PMIX_INFO_FREE(results, count);
}

int main(void)
{
    start();
    expect_mention(PMIX_QUERY_SPAWN_SUPPORT, PMIX_HOST);
    expect_mention(PMIX_QUERY_SPAWN_SUPPORT, PMIX_WDIR);
    expect_mention(PMIX_QUERY_SPAWN_SUPPORT, PMIX_MAPBY);
    expect_mention(PMIX_QUERY_DEBUG_SUPPORT, PMIX_DEBUG_STOP_IN_INIT);
    return finish();
}
