/* A libnvidia-ml.so.1 that tells what the text file STATE says: what NVIDIA's own binding is tried with.

   driver VERSION INIT        INIT, LOST, UNLISTED: the code that NVML answers with (0: all is well)
   gpu UUID TOTAL USED UTIL LOST UNLISTED TOLD      TOLD 0: nobody knows what its processes hold
   process GPU PID BYTES NUMBER CLIENT        as long as PID lives; told as NUMBER; CLIENT 1: of an MPS server */

#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { SUCCESS, INSUFFICIENT_SIZE = 7, UNKNOWN = 999, MOST = 64 };
typedef unsigned long long bytes_t;

struct gpu { char uuid[96]; bytes_t total, used; unsigned util; int lost, unlisted, told; };
struct process { unsigned gpu, pid; bytes_t used; unsigned number; int client; };
struct state {
    char driver[80];
    int init;
    unsigned gpus, processes;
    struct gpu gpu[MOST];
    struct process process[MOST];
};

static int lives(unsigned pid)
{
    char path[32];
    snprintf(path, sizeof path, "/proc/%u", pid);
    return pid == 0 || access(path, F_OK) == 0;
}

static int read_state(struct state *now)
{
    char line[256];
    FILE *file = fopen(STATE, "r");
    memset(now, 0, sizeof *now);
    if (!file)
        return UNKNOWN;
    while (fgets(line, sizeof line, file) && now->gpus < MOST && now->processes < MOST) {
        struct gpu *gpu = &now->gpu[now->gpus];
        struct process *one = &now->process[now->processes];
        if (sscanf(line, "driver %79s %d", now->driver, &now->init) == 2)
            continue;
        if (sscanf(line, "gpu %95s %llu %llu %u %d %d %d", gpu->uuid, &gpu->total, &gpu->used, &gpu->util, &gpu->lost,
                   &gpu->unlisted, &gpu->told) == 7)
            now->gpus++;
        else if (sscanf(line, "process %u %u %llu %u %d", &one->gpu, &one->pid, &one->used, &one->number,
                        &one->client) == 5 && lives(one->pid))
            now->processes++;
    }
    fclose(file);
    return now->init;
}

/* A handle is the GPU's number and one, so that no handle is NULL. */
static unsigned number_of(void *handle) { return (unsigned)((size_t)handle - 1); }

static int of_gpu(void *handle, struct state *now)
{
    int code = read_state(now);
    return code ? code : now->gpu[number_of(handle)].lost;
}

int nvmlInitWithFlags(unsigned flags)
{
    struct state now;
    return read_state(&now);
}

int nvmlSystemGetDriverVersion(char *version, unsigned length)
{
    struct state now;
    int code = read_state(&now);
    snprintf(version, length, "%s", now.driver);
    return code;
}

int nvmlDeviceGetCount_v2(unsigned *count)
{
    struct state now;
    int code = read_state(&now);
    *count = now.gpus;
    return code;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned number, void **handle)
{
    struct state now;
    *handle = (void *)((size_t)number + 1);
    return of_gpu(*handle, &now);
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned length)
{
    struct state now;
    int code = of_gpu(handle, &now);
    snprintf(uuid, length, "%s", now.gpu[number_of(handle)].uuid);
    return code;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned length)
{
    snprintf(name, length, "Fake RTX");
    return SUCCESS;
}

struct memory { bytes_t total, free, used; };

int nvmlDeviceGetMemoryInfo(void *handle, struct memory *memory)
{
    struct state now;
    int code = of_gpu(handle, &now);
    struct gpu *gpu = &now.gpu[number_of(handle)];
    memory->total = gpu->total;
    memory->used = gpu->used;
    for (unsigned i = 0; i < now.processes; i++)
        if (now.process[i].gpu == number_of(handle))
            memory->used += now.process[i].used;
    memory->free = memory->total - memory->used;
    return code;
}

struct rates { unsigned gpu, memory; };

int nvmlDeviceGetUtilizationRates(void *handle, struct rates *rates)
{
    struct state now;
    int code = of_gpu(handle, &now);
    rates->gpu = now.gpu[number_of(handle)].util;
    rates->memory = 0;
    return code;
}

struct listed { unsigned pid; bytes_t used; unsigned gpu_instance, compute_instance; };

/* As NVML counts: too little room is an error that tells how much is needed, and none at all is success. */
static int list(void *handle, unsigned *room, struct listed *found, int client)
{
    struct state now;
    int code = of_gpu(handle, &now);
    int told = now.gpu[number_of(handle)].told;
    unsigned count = 0;
    if (!code)
        code = now.gpu[number_of(handle)].unlisted;
    if (code)
        return code;
    for (unsigned i = 0; i < now.processes; i++) {
        struct process *one = &now.process[i];
        if (one->gpu != number_of(handle) || one->client != client)
            continue;
        if (found && count < *room)
            found[count] = (struct listed){one->number, told ? one->used : ~0ULL, ~0U, ~0U};
        count++;
    }
    code = count > *room ? INSUFFICIENT_SIZE : SUCCESS;
    *room = count;
    return code;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void *handle, unsigned *room, struct listed *found)
{
    return list(handle, room, found, 0);
}

int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *handle, unsigned *room, struct listed *found)
{
    return list(handle, room, found, 1);
}
