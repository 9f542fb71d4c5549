/* The shared region, generation by generation, as the facts of its binary layout say.
 *
 * GENERATION is 'A' to 'E'. What is between fields is left to the compiler, which is what makes the
 * offsets a check of the agent's table and not a copy of it.
 */
#ifndef REGION_H
#define REGION_H

#include <semaphore.h>
#include <stdint.h>

#define MAGIC 19920718
#define DEVICES 16
#define PROCESSES 1024
#define VERSIONED (GENERATION >= 'C')

struct memory {
    uint64_t context_size, module_size, data_size, offset, total;
#if VERSIONED
    uint64_t spare[3];
#endif
};

struct utilization {
    uint64_t dec_util, enc_util, sm_util;
#if VERSIONED
    uint64_t spare[3];
#endif
};

struct process {
    int32_t pid, host_pid;
#if GENERATION == 'D'
    uint64_t sequence;
#endif
    struct memory used[DEVICES];
    uint64_t monitor_used[DEVICES];
#if GENERATION != 'A'
    struct utilization utilization[DEVICES];
#endif
    int32_t status;
#if GENERATION == 'E'
    uint64_t sequence;
#endif
#if GENERATION == 'C'
    uint64_t spare[3];
#elif VERSIONED
    uint64_t spare[2];
#endif
};

struct region {
    int32_t magic;
#if VERSIONED
    uint32_t major, minor;
#endif
    int32_t sm_init_flag;
    size_t owner_pid;
    sem_t sem;
#if GENERATION == 'D'
    sem_t sem_postinit;
#endif
    uint64_t device_num;
    char uuids[DEVICES][96];
    uint64_t limit[DEVICES];
    uint64_t sm_limit[DEVICES];
    struct process procs[PROCESSES];
    int32_t proc_num, utilization_switch, recent_kernel, priority;
#if VERSIONED
    uint64_t last_kernel_time;
#endif
#if GENERATION == 'E'
    sem_t sem_postinit;
#elif VERSIONED
    uint64_t spare[4];
#endif
};

#endif
