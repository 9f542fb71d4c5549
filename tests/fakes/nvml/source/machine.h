// The machine that the stand-in plays: a file which all processes map, and how a call gets at it.
// tests/fakes/nvml/layout.py mirrors these structures; a test compares sizes and offsets.

#ifndef MACHINE_H
#define MACHINE_H

#include <stddef.h>
#include <stdint.h>

#include "nvml.h"

enum {
  GPUS = 16,
  PROFILES = 24,
  PLACES = 16,
  INSTANCES = 16,
  COMPUTES = 8,
  LINKS = 18,
  PROCESSES = 256,
  EVENTS = 64,
  FAULTS = 32,
  MAGIC = 0x4C4D564E,
};

enum { COMPUTE_TYPE, GRAPHICS_TYPE, MPS_TYPE };

enum { MEDIA_NONE, MEDIA_SHARE, MEDIA_ALL };

struct profile {
  char name[96];
  uint64_t memory;  // MiB
  uint32_t number;  // of the enumeration, which is not the id
  uint32_t id, slices, size, limit, sms, copies, decoders, jpegs, ofas, media, place_count;
  uint32_t places[PLACES];
  uint32_t preferred[PLACES];  // the order in which the driver itself tries them
};

struct compute {
  char uuid[64];
  uint32_t used, id, number, start, slices, mig_index;
};

struct instance {
  uint32_t used, id, profile, start;  // profile is the position in the GPU's table
  uint32_t leaked;                    // somebody keeps a handle open
  uint32_t reserved;
  struct compute computes[COMPUTES];
};

struct gpu {
  char uuid[64];
  char name[96];
  uint64_t memory, overhead;  // bytes
  uint32_t minor, domain, bus, device, pci_id, subsystem_id;
  uint32_t architecture, cc_major, cc_minor;
  int32_t numa;  // -1 where the platform does not tell
  uint32_t link_count, links[LINKS];
  uint32_t mig_capable, mig_current, mig_pending;
  uint32_t guest;          // in a VM: MIG waits for its restart
  uint32_t lost;
  uint32_t memory_hidden;  // as inside a container restricted to MIG
  uint32_t recovery;       // NVML_GPU_RECOVERY_ACTION_*
  uint32_t compute_mode;   // NVML_COMPUTEMODE_*
  uint32_t slots, profile_count;
  struct profile profiles[PROFILES];
  struct instance instances[INSTANCES];
};

struct process {
  uint64_t memory, seen;  // bytes, all ones where unknown; microseconds of the last sample
  uint32_t used, gpu, pid, gi, ci, utilization, type, reserved;
};

struct event {
  uint64_t xid;
  uint32_t gpu, gi, ci, reserved;
};

struct machine {
  char boot[64], driver_version[80], nvml_version[80];
  uint32_t cuda_version;
  uint32_t gpu_count;
  uint32_t unloaded;    // no driver: nothing answers
  uint32_t old_driver;  // lists profiles in MIG mode only
  uint32_t no_config, no_monitor;  // the capability files of MIG are missing
  uint32_t latency;     // microseconds that every call takes
  uint32_t births;      // compute instances ever made
  uint32_t reported;    // events ever reported; the newest lies at (reported - 1) % EVENTS
  uint32_t misplaces;   // instances go where the driver likes, whatever place is named
  struct gpu gpus[GPUS];
  struct process processes[PROCESSES];
  struct event events[EVENTS];
};

struct fault {
  char call[64];
  uint32_t nth, code, seen, used;  // nth 0 is every call
};

// Of two copies one is valid. Whoever changes the machine writes the other and then one word, so
// that a process killed in between has changed nothing.
struct shared {
  uint32_t magic, size, active, reserved;
  struct fault faults[FAULTS];
  struct machine copies[2];
};

// Faults that are no code of NVML: the caller is killed before its change counts, or after.
enum { DIES_BEFORE = 9998, DIES_AFTER = 9999 };

struct scope {
  struct machine *machine;
  nvmlReturn_t refused;
  int commit, death;
};

struct scope machine_enter(const char *call, int writes);
void machine_leave(struct scope *scope);
nvmlReturn_t machine_open(void);
nvmlReturn_t machine_close(void);

// The machine within a call; it is let go of when the function returns, whichever way.
#define READ(name) ENTER(name, __func__, 0)
#define WRITE(name) ENTER(name, __func__, 1)
#define ENTER(name, call, writes)                                                            \
  struct scope scope_ __attribute__((cleanup(machine_leave))) = machine_enter(call, writes); \
  if (scope_.refused) return scope_.refused;                                                 \
  struct machine *name = scope_.machine
#define COMMIT() (scope_.commit = 1, NVML_SUCCESS)
#define TRY(expression)                     \
  do {                                      \
    nvmlReturn_t try_ = (expression);       \
    if (try_) return try_;                  \
  } while (0)
#define REQUIRE(condition, code) \
  do {                           \
    if (!(condition)) return code; \
  } while (0)

// Handles are numbers made of places, so one that outlives its instance finds the next one there.
enum kind { DEVICE = 1, MIG_DEVICE = 2, GPU_INSTANCE = 3, COMPUTE_INSTANCE = 4 };

struct target {
  enum kind kind;
  uint32_t index;
  struct gpu *gpu;
  struct instance *instance;
  struct compute *compute;
};

void *handle_of(enum kind kind, uint32_t gpu, uint32_t gi, uint32_t ci);
nvmlReturn_t resolve(struct machine *machine, const void *handle, struct target *found);
nvmlReturn_t resolve_device(struct machine *machine, nvmlDevice_t handle, struct target *found);
nvmlReturn_t resolve_cut(struct machine *machine, nvmlDevice_t handle, struct target *found);
nvmlReturn_t resolve_instance(struct machine *machine, const void *handle, struct target *found);
nvmlReturn_t resolve_compute(struct machine *machine, const void *handle, struct target *found);

struct instance *instance_of(struct gpu *gpu, uint32_t id);
struct compute *compute_of(struct instance *instance, uint32_t id);
nvmlReturn_t copied(char *to, unsigned int length, const char *from);
void fill_pci(nvmlPciInfo_t *pci, const struct gpu *gpu);

#endif
