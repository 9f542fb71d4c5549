/* A stand-in for the CUDA driver: as much of libcuda.so.1 as programs and the library need.
 *
 * It counts nothing itself. Each process holds a connection to the driver that a test plays
 * (tests/fakes/cuda/driver.py), which learns from the kernel which process it is, says whether
 * memory is left, and sees the connection end with the process, however that ends.
 */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define MOST_ALLOCATIONS 4096
#define MOST_GPUS 16
#define MULTIPROCESSORS 108
#define BLOCKS_AT_ONCE (32.0 * MULTIPROCESSORS)
#define CYCLES_PER_MICROSECOND 1800.0

/* Codes of cuda.h. */
enum {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3,
    INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_SUPPORTED = 801,
};
/* What is asked of the driver; driver.py has the same numbers. */
enum { COUNT, TAKE, GIVE, INFO, LAUNCH };

struct request {
    int32_t what, device;
    int64_t bytes;
};

struct answer {
    int64_t code, first, second;
};

static const int64_t CONTEXT_BYTES = 256LL << 20;

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;
static int connection = -1;
static pid_t owner;
static int gpus = -1;
static int visible[MOST_GPUS]; /* devices by ordinal */
static int contexts[MOST_GPUS]; /* retained, by device; a context is a pointer to its element */
static int *current;
static struct { uint64_t at; int64_t bytes; int device; } allocations[MOST_ALLOCATIONS];
static uint64_t next_address = 0x700000000000;

static int open_connection(void)
{
    const char *path = getenv("VGPU_FAKE_CUDA");
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path ? path : "/run/vgpu-driver/cuda", sizeof address.sun_path - 1);
    if (connection >= 0)
        close(connection); /* of the parent */
    connection = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    owner = getpid();
    return connection < 0 || connect(connection, (struct sockaddr *)&address, sizeof address);
}

static struct answer ask(int what, int device, int64_t bytes)
{
    struct request request = {what, device < MOST_GPUS ? visible[device] : device, bytes};
    struct answer answer = {.code = NOT_INITIALIZED};
    pthread_mutex_lock(&one_at_a_time);
    if (owner == getpid() || !open_connection())
        if (write(connection, &request, sizeof request) != sizeof request ||
            recv(connection, &answer, sizeof answer, MSG_WAITALL) != sizeof answer)
            answer.code = NOT_INITIALIZED;
    pthread_mutex_unlock(&one_at_a_time);
    return answer;
}

static int device_of(const int *context)
{
    return context ? (int)(context - contexts) : -1;
}

EXPORT int cuInit(unsigned flags)
{
    (void)flags;
    struct answer answer = ask(COUNT, 0, 0);
    if (answer.code)
        return (int)answer.code;
    const char *next = getenv("CUDA_VISIBLE_DEVICES");
    if (!next || !*next) {
        for (gpus = 0; gpus < answer.first && gpus < MOST_GPUS; gpus++)
            visible[gpus] = gpus;
        return SUCCESS;
    }
    for (gpus = 0; next && gpus < MOST_GPUS; next = strchr(next, ','), gpus++)
        visible[gpus] = atoi(next += *next == ',');
    return SUCCESS;
}

EXPORT int cuDriverGetVersion(int *version)
{
    *version = 12090;
    return SUCCESS;
}

EXPORT int cuDeviceGetCount(int *count)
{
    *count = gpus;
    return gpus < 0 ? NOT_INITIALIZED : SUCCESS;
}

EXPORT int cuDeviceGet(int *device, int ordinal)
{
    *device = ordinal;
    return ordinal < 0 || ordinal >= gpus ? INVALID_DEVICE : SUCCESS;
}

EXPORT int cuDeviceGetName(char *name, int size, int device)
{
    snprintf(name, (size_t)size, "stand-in %d", device);
    return SUCCESS;
}

EXPORT int cuDeviceGetUuid(char *uuid, int device)
{
    memset(uuid, 0, 16);
    uuid[15] = (char)device;
    return SUCCESS;
}

EXPORT int cuDeviceGetUuid_v2(char *uuid, int device)
{
    return cuDeviceGetUuid(uuid, device);
}

/* Of what the limiter of compute asks: multiprocessors, and threads of one. */
EXPORT int cuDeviceGetAttribute(int *value, int attribute, int device)
{
    (void)device;
    *value = attribute == 16 ? MULTIPROCESSORS : attribute == 39 ? 2048 : 1;
    return SUCCESS;
}

EXPORT int cuDeviceTotalMem_v2(size_t *bytes, int device)
{
    struct answer answer = ask(INFO, device, 0);
    *bytes = (size_t)answer.second;
    return (int)answer.code;
}

EXPORT int cuDevicePrimaryCtxRetain(void **context, int device)
{
    if (device < 0 || device >= gpus)
        return INVALID_DEVICE;
    if (!contexts[device]) {
        struct answer answer = ask(TAKE, device, CONTEXT_BYTES);
        if (answer.code)
            return (int)answer.code;
    }
    contexts[device]++;
    *context = &contexts[device];
    return SUCCESS;
}

EXPORT int cuDevicePrimaryCtxRelease_v2(int device)
{
    if (device < 0 || device >= gpus || !contexts[device])
        return INVALID_CONTEXT;
    return --contexts[device] ? SUCCESS : (int)ask(GIVE, device, CONTEXT_BYTES).code;
}

EXPORT int cuDevicePrimaryCtxGetState(int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = contexts[device] > 0;
    return SUCCESS;
}

EXPORT int cuCtxCreate_v2(void **context, unsigned flags, int device)
{
    (void)flags;
    int code = cuDevicePrimaryCtxRetain(context, device);
    current = code ? current : *context;
    return code;
}

EXPORT int cuCtxDestroy_v2(void *context)
{
    current = current == context ? NULL : current;
    return cuDevicePrimaryCtxRelease_v2(device_of(context));
}

EXPORT int cuCtxSetCurrent(void *context)
{
    current = context;
    return SUCCESS;
}

EXPORT int cuCtxGetCurrent(void **context)
{
    *context = current;
    return SUCCESS;
}

EXPORT int cuCtxGetDevice(int *device)
{
    *device = device_of(current);
    return current ? SUCCESS : INVALID_CONTEXT;
}

EXPORT int cuCtxSynchronize(void)
{
    return SUCCESS;
}

EXPORT int cuMemAlloc_v2(uint64_t *address, size_t bytes)
{
    int place = 0;
    if (!current)
        return INVALID_CONTEXT;
    while (place < MOST_ALLOCATIONS && allocations[place].bytes)
        place++;
    if (!bytes || place == MOST_ALLOCATIONS)
        return INVALID_VALUE;
    struct answer answer = ask(TAKE, device_of(current), (int64_t)bytes);
    if (answer.code)
        return (int)answer.code;
    *address = next_address;
    next_address += (bytes + 0xFFFF) & ~(uint64_t)0xFFFF;
    allocations[place].at = *address;
    allocations[place].bytes = (int64_t)bytes;
    allocations[place].device = device_of(current);
    return SUCCESS;
}

EXPORT int cuMemAllocManaged(uint64_t *address, size_t bytes, unsigned flags)
{
    (void)flags;
    return cuMemAlloc_v2(address, bytes);
}

EXPORT int cuMemFree_v2(uint64_t address)
{
    for (int i = 0; i < MOST_ALLOCATIONS; i++) {
        if (!allocations[i].bytes || allocations[i].at != address)
            continue;
        int64_t bytes = allocations[i].bytes;
        allocations[i].bytes = 0;
        return (int)ask(GIVE, allocations[i].device, bytes).code;
    }
    return INVALID_VALUE;
}

EXPORT int cuMemGetInfo_v2(size_t *left, size_t *total)
{
    if (!current)
        return INVALID_CONTEXT;
    struct answer answer = ask(INFO, device_of(current), 0);
    *left = (size_t)answer.first;
    *total = (size_t)answer.second;
    return (int)answer.code;
}

EXPORT int cuModuleLoadData(void **module, const void *image)
{
    *module = (void *)image;
    return image ? SUCCESS : INVALID_VALUE;
}

EXPORT int cuModuleGetFunction(void **function, void *module, const char *name)
{
    (void)module;
    *function = (void *)name;
    return SUCCESS;
}

/* A kernel with a parameter takes that many clock cycles, as often as its blocks fill the GPU. */
static int64_t compute(double blocks, void **parameters)
{
    struct timespec began, ended;
    if (!parameters)
        return 0;
    double cycles = (double)*(const uint64_t *)parameters[0];
    clock_gettime(CLOCK_MONOTONIC, &began);
    usleep((useconds_t)(blocks / BLOCKS_AT_ONCE * cycles / CYCLES_PER_MICROSECOND));
    clock_gettime(CLOCK_MONOTONIC, &ended);
    return (ended.tv_sec - began.tv_sec) * 1000000 + (ended.tv_nsec - began.tv_nsec) / 1000;
}

EXPORT int cuLaunchKernel(void *function, unsigned grid_x, unsigned grid_y, unsigned grid_z,
                          unsigned block_x, unsigned block_y, unsigned block_z, unsigned shared,
                          void *stream, void **parameters, void **extra)
{
    (void)function, (void)block_x, (void)block_y, (void)block_z, (void)shared;
    (void)stream, (void)extra;
    if (!current)
        return INVALID_CONTEXT;
    int64_t microseconds = compute((double)grid_x * grid_y * grid_z, parameters);
    return (int)ask(LAUNCH, device_of(current), microseconds).code;
}

EXPORT int cuGetErrorString(int code, const char **text)
{
    *text = code ? "an error of the stand-in" : "no error";
    return SUCCESS;
}

EXPORT int cuGetErrorName(int code, const char **text)
{
    *text = code ? "CUDA_ERROR" : "CUDA_SUCCESS";
    return SUCCESS;
}

EXPORT int cuGetExportTable(const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return NOT_SUPPORTED;
}

/* Some builds link to it and none of ours calls it. */
EXPORT int cuArray3DGetDescriptor_v2(void *descriptor, void *array)
{
    (void)descriptor, (void)array;
    return NOT_SUPPORTED;
}

EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                               int *status);

EXPORT int cuGetProcAddress(const char *symbol, void **function, int version, uint64_t flags)
{
    return cuGetProcAddress_v2(symbol, function, version, flags, NULL);
}

/* Not by dlsym, which the library replaces. */
#define NAMED(name, function) {#name, (void *)(function)}
static const struct { const char *name; void *function; } FUNCTIONS[] = {
    NAMED(cuInit, cuInit),
    NAMED(cuDriverGetVersion, cuDriverGetVersion),
    NAMED(cuDeviceGet, cuDeviceGet),
    NAMED(cuDeviceGetCount, cuDeviceGetCount),
    NAMED(cuDeviceGetAttribute, cuDeviceGetAttribute),
    NAMED(cuDeviceTotalMem, cuDeviceTotalMem_v2),
    NAMED(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain),
    NAMED(cuCtxCreate, cuCtxCreate_v2),
    NAMED(cuCtxSetCurrent, cuCtxSetCurrent),
    NAMED(cuCtxGetCurrent, cuCtxGetCurrent),
    NAMED(cuCtxGetDevice, cuCtxGetDevice),
    NAMED(cuMemAlloc, cuMemAlloc_v2),
    NAMED(cuMemAllocManaged, cuMemAllocManaged),
    NAMED(cuMemFree, cuMemFree_v2),
    NAMED(cuMemGetInfo, cuMemGetInfo_v2),
    NAMED(cuLaunchKernel, cuLaunchKernel),
    NAMED(cuGetProcAddress, cuGetProcAddress_v2),
};

EXPORT int cuGetProcAddress_v2(const char *symbol, void **function, int version, uint64_t flags,
                               int *status)
{
    (void)version, (void)flags;
    *function = NULL;
    for (size_t i = 0; i < sizeof FUNCTIONS / sizeof *FUNCTIONS; i++)
        if (!strcmp(FUNCTIONS[i].name, symbol))
            *function = FUNCTIONS[i].function;
    if (status)
        *status = *function ? 0 : 1;
    return *function ? SUCCESS : NOT_FOUND;
}
