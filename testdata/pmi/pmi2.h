/* The interface of Slurm's libpmi2; Debian ships the library without its header. */
struct info {
    int handle;
    int mutex;
    int references;
    struct info *next;
    char *key;
    char *value;
};

int PMI2_Init(int *spawned, int *size, int *rank, int *appnum);
int PMI2_Finalize(void);
int PMI2_Abort(int flag, const char *message);
int PMI2_Job_Spawn(int count, const char *programs[], int counts_of_args[], const char **args[], const int ranks[],
                   const int info_counts[], const struct info *infos[], int preput_count, const struct info *preput[],
                   char *job, int job_size, int errors[]);
int PMI2_Job_GetId(char *job, int size);
int PMI2_Job_Connect(const char *job, void *connection);
int PMI2_Job_Disconnect(const char *job);
int PMI2_KVS_Put(const char *key, const char *value);
int PMI2_KVS_Get(const char *job, int rank, const char *key, char *value, int size, int *length);
int PMI2_KVS_Fence(void);
int PMI2_Info_GetNodeAttr(const char *name, char *value, int size, int *found, int wait);
int PMI2_Info_GetNodeAttrIntArray(const char *name, int *array, int size, int *length, int *found);
int PMI2_Info_PutNodeAttr(const char *name, const char *value);
int PMI2_Info_GetJobAttr(const char *name, char *value, int size, int *found);
int PMI2_Nameserv_publish(const char *name, const struct info *info, const char *port);
int PMI2_Nameserv_lookup(const char *name, const struct info *info, char *port, int size);
int PMI2_Nameserv_unpublish(const char *name, const struct info *info);

#define PMI2_SUCCESS 0
#define MAX_VALUE 1024
