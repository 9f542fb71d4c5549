/* A CUDA program under command: it finds the driver as NVIDIA's runtime does, by dlopen and dlsym.
 *
 * Each line of its input is a command, each is answered by a line; numbers are bytes, errors are
 * `error CODE` with the code of cuda.h or nvml.h.
 *   init              count of devices
 *   alloc D BYTES     the number of the allocation
 *   free N            ok
 *   info D            free and total, of cuMemGetInfo
 *   total D           of cuDeviceTotalMem
 *   nvml D            used and total, of nvmlDeviceGetMemoryInfo
 *   launch D GRID     ok, once the kernel is launched
 *   pid               its own, as it sees it
 *   exit              ends as a program does
 */
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MOST_GPUS 16
#define MOST_ALLOCATIONS 1024

static void *cuda, *nvml;
static void *contexts[MOST_GPUS];
static struct { uint64_t address; int device; } allocations[MOST_ALLOCATIONS];
static int allocated;

static void *named(void **library, const char *file, const char *name)
{
    if (!*library)
        *library = dlopen(file, RTLD_NOW | RTLD_GLOBAL);
    void *found = *library ? dlsym(*library, name) : NULL;
    if (!found) {
        printf("error no %s\n", name);
        exit(1);
    }
    return found;
}

#define CUDA(name) ((int (*)())named(&cuda, "libcuda.so.1", #name))
#define NVML(name) ((int (*)())named(&nvml, "libnvidia-ml.so.1", #name))

static int failed(int code)
{
    if (code)
        printf("error %d\n", code);
    return code;
}

/* Make the device's primary context the current one. */
static int failed_on(int device)
{
    if (device < 0 || device >= MOST_GPUS)
        return failed(101);
    if (!contexts[device] && failed(CUDA(cuDevicePrimaryCtxRetain)(&contexts[device], device)))
        return 1;
    return failed(CUDA(cuCtxSetCurrent)(contexts[device]));
}

static void allocate(int device, unsigned long long bytes)
{
    if (failed_on(device) || allocated == MOST_ALLOCATIONS)
        return;
    uint64_t *address = &allocations[allocated].address;
    if (failed(CUDA(cuMemAlloc_v2)(address, (size_t)bytes)))
        return;
    allocations[allocated].device = device;
    printf("%d\n", allocated++);
}

static void tell_nvml(int device)
{
    void *handle;
    unsigned long long memory[3]; /* total, free, used */
    if (!failed(NVML(nvmlInit_v2)()) &&
        !failed(NVML(nvmlDeviceGetHandleByIndex_v2)(device, &handle)) &&
        !failed(NVML(nvmlDeviceGetMemoryInfo)(handle, memory)))
        printf("%llu %llu\n", memory[2], memory[0]);
}

static void obey(const char *line)
{
    int device;
    unsigned grid;
    unsigned long long bytes;
    size_t left, total;
    if (!strncmp(line, "init", 4)) {
        int count;
        if (!failed(CUDA(cuInit)(0)) && !failed(CUDA(cuDeviceGetCount)(&count)))
            printf("%d\n", count);
    } else if (sscanf(line, "alloc %d %llu", &device, &bytes) == 2) {
        allocate(device, bytes);
    } else if (sscanf(line, "free %d", &device) == 1) {
        if (!failed_on(allocations[device].device) &&
            !failed(CUDA(cuMemFree_v2)(allocations[device].address)))
            puts("ok");
    } else if (sscanf(line, "info %d", &device) == 1) {
        if (!failed_on(device) && !failed(CUDA(cuMemGetInfo_v2)(&left, &total)))
            printf("%zu %zu\n", left, total);
    } else if (sscanf(line, "total %d", &device) == 1) {
        if (!failed(CUDA(cuDeviceTotalMem_v2)(&total, device)))
            printf("%zu\n", total);
    } else if (sscanf(line, "nvml %d", &device) == 1) {
        tell_nvml(device);
    } else if (sscanf(line, "launch %d %u", &device, &grid) == 2) {
        if (!failed_on(device) && !failed(CUDA(cuLaunchKernel)(NULL, grid, 1, 1, 128, 1, 1, 0, NULL,
                                                               NULL, NULL)))
            puts("ok");
    } else if (!strncmp(line, "pid", 3)) {
        printf("%d\n", getpid());
    } else {
        puts("error no such command");
    }
}

int main(void)
{
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "exit", 4)) {
            puts("bye");
            return 0;
        }
        obey(line);
    }
    return 0;
}
