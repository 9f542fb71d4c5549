/* Plays the interception library in one process: attaches to a region, allocates, launches, dies.
 *
 * The region is CUDA_DEVICE_MEMORY_SHARED_CACHE, limits of one that is not there yet come from
 * CUDA_DEVICE_MEMORY_LIMIT_<i> and CUDA_DEVICE_SM_LIMIT, devices from PLAYED_UUIDS (with commas) or,
 * where that is not set, NVIDIA_VISIBLE_DEVICES. Called as `ORDERS ANSWERS` it makes the first a
 * FIFO, which somebody must open before it attaches, and appends to the second.
 * Each line of its input is a command, each is answered by a line:
 *   alloc D BYTES   oom, or the bytes that the process holds on device D
 *   free D BYTES    the bytes left, below 0 as the library has it
 *   launch          blocked, limited PERCENT or free
 *   limit D         bytes
 *   host            the process's number on the node, as it stands in its slot
 *   exit            ends as a program does; SIGKILL leaves the slot
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "region.h"

static struct region *region;
static int own = -1;

static void fail(const char *what)
{
    printf("error %s: %s\n", what, strerror(errno));
    exit(1);
}

static uint64_t bytes_of(const char *text)
{
    char *end;
    uint64_t number = strtoull(text, &end, 0);
    switch (*end) {
    case 'g': case 'G': return number << 30;
    case 'm': case 'M': return number << 20;
    case 'k': case 'K': return number << 10;
    default: return number;
    }
}

static void initialise(void)
{
    char name[64];
    const char *text;
#if VERSIONED
    region->major = 1;
    region->minor = GENERATION == 'E' ? 2 : 1;
#endif
    sem_init(&region->sem, 1, 1);
#if GENERATION >= 'D'
    sem_init(&region->sem_postinit, 1, 1);
#endif
    for (int i = 0; i < DEVICES; i++) {
        snprintf(name, sizeof name, "CUDA_DEVICE_MEMORY_LIMIT_%d", i);
        text = getenv(name);
        region->limit[i] = text ? bytes_of(text) : 0;
        text = getenv("CUDA_DEVICE_SM_LIMIT");
        region->sm_limit[i] = text ? strtoull(text, NULL, 10) : 100;
    }
    region->utilization_switch = 1;
    region->recent_kernel = 2;
    text = getenv("CUDA_TASK_PRIORITY");
    region->priority = text ? atoi(text) : 1;
    __sync_synchronize();
    region->magic = MAGIC;
}

static void enter(void)
{
    struct timespec patience;
    clock_gettime(CLOCK_REALTIME, &patience);
    patience.tv_sec += 10;
    if (sem_timedwait(&region->sem, &patience))
        fail("semaphore");
    region->owner_pid = getpid();
}

static void leave(void)
{
    region->owner_pid = 0;
    sem_post(&region->sem);
}

/* Slots of dead processes are dropped, the last moves into the hole. */
static void compact(void)
{
    for (int k = 0; k < region->proc_num; k++) {
        int32_t pid = region->procs[k].pid;
        if (pid == 0 || (kill(pid, 0) && errno == ESRCH))
            region->procs[k--] = region->procs[--region->proc_num];
    }
}

static struct process *slot(void)
{
    return &region->procs[own];
}

static void attach(void)
{
    const char *path = getenv("CUDA_DEVICE_MEMORY_SHARED_CACHE");
    const char *uuids = getenv("PLAYED_UUIDS");
    if (!uuids)
        uuids = getenv("NVIDIA_VISIBLE_DEVICES");
    umask(0);
    int fd = open(path ? path : "/tmp/cudevshr.cache", O_RDWR | O_CREAT, 0666);
    if (fd < 0)
        fail("open");
    if (lseek(fd, sizeof *region, SEEK_SET) < 0)
        fail("seek");
    struct stat found;
    if (fstat(fd, &found))
        fail("stat");
    if ((size_t)found.st_size < sizeof *region + 1 && write(fd, "", 1) != 1)
        fail("extend");
    region = mmap(NULL, sizeof *region, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (region == MAP_FAILED)
        fail("map");
    lseek(fd, 0, SEEK_SET);
    if (lockf(fd, F_LOCK, sizeof *region))
        fail("lock");
    if (region->magic != MAGIC)
        initialise();
    region->device_num = 0;
    for (const char *next = uuids; next && *next; next += strcspn(next, ",") + 1) {
        size_t length = strcspn(next, ",");
        memcpy(region->uuids[region->device_num], next, length);
        region->uuids[region->device_num++][length] = 0;
        if (!next[length])
            break;
    }
    if (lockf(fd, F_ULOCK, sizeof *region))
        fail("unlock");
    enter();
    compact();
    own = region->proc_num++;
    memset(slot(), 0, sizeof *slot());
    slot()->pid = getpid();
    slot()->status = 1;
    leave();
#if VERSIONED
    region->last_kernel_time = time(NULL);
#endif
}

static uint64_t usage(int device)
{
    uint64_t sum = 0;
    for (int k = 0; k < region->proc_num; k++)
        sum += region->procs[k].used[device].total;
    return sum;
}

static int allocated(int device, uint64_t amount)
{
    uint64_t limit = region->limit[device];
    if (limit && usage(device) + amount > limit) {
        enter();
        compact();
        leave();
        for (own = 0; slot()->pid != getpid(); own++)
            ;
        if (usage(device) + amount > limit)
            return 0;
    }
    slot()->used[device].data_size += amount;
    slot()->used[device].total += amount;
    return 1;
}

/* From generation D on who has no limit is never held back, and leaves nothing but the time. */
static void launch(void)
{
    uint64_t percent = region->sm_limit[0];
    int limited = region->utilization_switch && percent > 0 && percent < 100;
#if VERSIONED
    region->last_kernel_time = time(NULL);
#endif
    if (GENERATION >= 'D' && !limited) {
        puts("free");
        return;
    }
    if (region->recent_kernel < 0) {
        puts("blocked");
        return;
    }
    region->recent_kernel = 2;
    if (slot()->host_pid && limited)
        printf("limited %lu\n", (unsigned long)percent);
    else
        puts("free");
}

static void obey(const char *line)
{
    int device;
    unsigned long amount;
    if (sscanf(line, "alloc %d %lu", &device, &amount) == 2) {
        if (allocated(device, amount))
            printf("%lu\n", (unsigned long)slot()->used[device].total);
        else
            puts("oom");
    } else if (sscanf(line, "free %d %lu", &device, &amount) == 2) {
        slot()->used[device].data_size -= amount;
        slot()->used[device].total -= amount;
        printf("%ld\n", (long)slot()->used[device].total);
    } else if (sscanf(line, "limit %d", &device) == 1) {
        printf("%lu\n", (unsigned long)region->limit[device]);
    } else if (!strncmp(line, "launch", 6)) {
        launch();
    } else if (!strncmp(line, "host", 4)) {
        printf("%d\n", slot()->host_pid);
    } else {
        puts("error no such command");
    }
}

int main(int count, char **arguments)
{
    char line[256];
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (count > 1 && !strcmp(arguments[1], "offsets")) {
        printf("%zu %zu %zu %zu %zu %zu %zu\n", sizeof(struct region) + 1,
               offsetof(struct region, device_num), offsetof(struct region, uuids),
               offsetof(struct region, limit), offsetof(struct region, sm_limit),
               offsetof(struct region, procs), offsetof(struct region, proc_num));
        printf("%zu %zu %zu %zu\n", sizeof(struct process), offsetof(struct process, used),
               sizeof(struct memory), offsetof(struct process, status));
        return 0;
    }
    if (count > 2) {
        if (mkfifo(arguments[1], 0600) && errno != EEXIST)
            fail("mkfifo");
        if (!freopen(arguments[1], "r", stdin) || !freopen(arguments[2], "a", stdout))
            fail("reopen");
        setvbuf(stdout, NULL, _IOLBF, 0);
    }
    attach();
    printf("attached %d\n", own);
    while (fgets(line, sizeof line, stdin)) {
        if (!strncmp(line, "exit", 4)) {
            slot()->pid = 0;
            slot()->status = 0;
            puts("bye");
            return 0;
        }
        obey(line);
    }
    return 0;
}
