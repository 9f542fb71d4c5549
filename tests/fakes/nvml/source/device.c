// What a GPU or a MIG device says of itself.

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "machine.h"

static const uint64_t MIB = 1 << 20;

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *count) {
  READ(machine);
  REQUIRE(count, NVML_ERROR_INVALID_ARGUMENT);
  *count = machine->gpu_count;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device) {
  READ(machine);
  REQUIRE(device && index < machine->gpu_count, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(!machine->gpus[index].lost, NVML_ERROR_GPU_IS_LOST);
  *device = handle_of(DEVICE, index, 0, 0);
  return NVML_SUCCESS;
}

// The first of its names, which the interception library calls.
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex(unsigned int index, nvmlDevice_t *device) {
  return nvmlDeviceGetHandleByIndex_v2(index, device);
}

// Take the form MIG-GPU-<uuid>/<gi>/<ci>, which drivers before R470 used.
static int named_by_place(const char *uuid, const struct gpu *gpu, uint32_t gi, uint32_t ci) {
  char text[128];
  snprintf(text, sizeof text, "MIG-%s/%u/%u", gpu->uuid, gi, ci);
  return !strcasecmp(text, uuid);
}

static nvmlDevice_t mig_called(struct gpu *gpu, uint32_t index, const char *uuid) {
  for (int i = 0; i < INSTANCES; i++) {
    struct instance *gi = &gpu->instances[i];
    for (int c = 0; gi->used && c < COMPUTES; c++) {
      struct compute *ci = &gi->computes[c];
      if (ci->used && (!strcasecmp(ci->uuid, uuid) || named_by_place(uuid, gpu, gi->id, ci->id)))
        return handle_of(MIG_DEVICE, index, gi->id, ci->id);
    }
  }
  return NULL;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device) {
  READ(machine);
  REQUIRE(uuid && device, NVML_ERROR_INVALID_ARGUMENT);
  for (uint32_t i = 0; i < machine->gpu_count; i++) {
    struct gpu *gpu = &machine->gpus[i];
    int itself = !strcasecmp(gpu->uuid, uuid);
    nvmlDevice_t found = itself ? handle_of(DEVICE, i, 0, 0) : mig_called(gpu, i, uuid);
    if (!found) continue;
    REQUIRE(!gpu->lost, NVML_ERROR_GPU_IS_LOST);
    *device = found;
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus_id, nvmlDevice_t *device) {
  READ(machine);
  unsigned int domain, bus, slot;
  REQUIRE(bus_id && device, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(sscanf(bus_id, "%x:%x:%x", &domain, &bus, &slot) == 3, NVML_ERROR_INVALID_ARGUMENT);
  for (uint32_t i = 0; i < machine->gpu_count; i++) {
    struct gpu *gpu = &machine->gpus[i];
    if (gpu->domain != domain || gpu->bus != bus || gpu->device != slot) continue;
    REQUIRE(!gpu->lost, NVML_ERROR_GPU_IS_LOST);
    *device = handle_of(DEVICE, i, 0, 0);
    return NVML_SUCCESS;
  }
  return NVML_ERROR_NOT_FOUND;
}

EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  if (!at.instance) return copied(name, length, at.gpu->name);
  char text[256];
  snprintf(text, sizeof text, "%s MIG %s", at.gpu->name,
           at.gpu->profiles[at.instance->profile].name);
  return copied(name, length, text);
}

EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  return copied(uuid, length, at.compute ? at.compute->uuid : at.gpu->uuid);
}

EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(index, NVML_ERROR_INVALID_ARGUMENT);
  *index = at.compute ? at.compute->mig_index : at.index;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(minor, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(!at.compute, NVML_ERROR_NOT_SUPPORTED);
  *minor = at.gpu->minor;
  return NVML_SUCCESS;
}

void fill_pci(nvmlPciInfo_t *pci, const struct gpu *gpu) {
  *pci = (nvmlPciInfo_t){
      .domain = gpu->domain,
      .bus = gpu->bus,
      .device = gpu->device,
      .pciDeviceId = gpu->pci_id << 16 | 0x10DE,
      .pciSubSystemId = gpu->subsystem_id,
  };
  snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", gpu->domain & 0xFFFF,
           gpu->bus & 0xFF, gpu->device & 0xFF);
  snprintf(pci->busId, sizeof pci->busId, "%08X:%02X:%02X.0", gpu->domain, gpu->bus,
           gpu->device);
}

EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(pci, NVML_ERROR_INVALID_ARGUMENT);
  fill_pci(pci, at.gpu);
  return NVML_SUCCESS;
}

static uint64_t held(const struct machine *machine, const struct target *at) {
  uint64_t sum = 0;
  for (int i = 0; i < PROCESSES; i++) {
    const struct process *process = &machine->processes[i];
    if (!process->used || process->gpu != at->index || process->memory == UINT64_MAX) continue;
    if (!at->instance || process->gi == at->instance->id) sum += process->memory;
  }
  return sum;
}

static nvmlReturn_t measured(struct machine *machine, nvmlDevice_t device, nvmlMemory_v2_t *out) {
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(at.instance || !at.gpu->memory_hidden, NVML_ERROR_NO_PERMISSION);
  out->total = at.gpu->memory;
  if (at.instance) out->total = at.gpu->profiles[at.instance->profile].memory * MIB;
  out->reserved = at.instance ? 0 : at.gpu->overhead;
  out->used = held(machine, &at);
  if (out->used + out->reserved > out->total) out->used = out->total - out->reserved;
  out->free = out->total - out->reserved - out->used;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory) {
  READ(machine);
  nvmlMemory_v2_t whole;
  REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
  TRY(measured(machine, device, &whole));
  *memory = (nvmlMemory_t){whole.total, whole.free, whole.used + whole.reserved};
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *memory) {
  READ(machine);
  REQUIRE(memory, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(memory->version == NVML_STRUCT_VERSION(nvmlMemory_v2_t, 2),
          NVML_ERROR_ARGUMENT_VERSION_MISMATCH);
  return measured(machine, device, memory);
}

EXPORT nvmlReturn_t nvmlDeviceGetArchitecture(nvmlDevice_t device, unsigned int *architecture) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(architecture, NVML_ERROR_INVALID_ARGUMENT);
  *architecture = at.gpu->architecture;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                       int *minor) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(major && minor, NVML_ERROR_INVALID_ARGUMENT);
  *major = (int)at.gpu->cc_major;
  *minor = (int)at.gpu->cc_minor;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetComputeMode(nvmlDevice_t device, unsigned int *mode) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(mode, NVML_ERROR_INVALID_ARGUMENT);
  *mode = at.gpu->compute_mode;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceSetComputeMode(nvmlDevice_t device, unsigned int mode) {
  WRITE(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(mode < NVML_COMPUTEMODE_COUNT, NVML_ERROR_INVALID_ARGUMENT);
  at.gpu->compute_mode = mode;
  return COMMIT();
}

EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned int *node) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(node, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(at.gpu->numa >= 0, NVML_ERROR_NOT_SUPPORTED);
  *node = (unsigned int)at.gpu->numa;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned int size,
                                                unsigned long *nodes, unsigned int scope) {
  READ(machine);
  struct target at;
  (void)scope;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(nodes && size, NVML_ERROR_INVALID_ARGUMENT);
  REQUIRE(at.gpu->numa >= 0, NVML_ERROR_NOT_SUPPORTED);
  memset(nodes, 0, size * sizeof *nodes);
  nodes[0] = 1UL << at.gpu->numa;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count,
                                             nvmlFieldValue_t *values) {
  READ(machine);
  struct target at;
  TRY(resolve_device(machine, device, &at));
  REQUIRE(values && count > 0, NVML_ERROR_INVALID_ARGUMENT);
  for (int i = 0; i < count; i++) {
    nvmlFieldValue_t *value = &values[i];
    value->valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
    value->nvmlReturn = at.gpu->mig_capable ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
    if (value->fieldId == NVML_FI_DEV_IS_RESETLESS_MIG_SUPPORTED)
      value->value.ui = at.gpu->architecture >= NVML_DEVICE_ARCH_HOPPER;
    else if (value->fieldId == NVML_FI_DEV_IS_MIG_MODE_INDEPENDENT_MIG_QUERY_CAPABLE)
      value->value.ui = !machine->old_driver;
    else if (value->fieldId == NVML_FI_DEV_GET_GPU_RECOVERY_ACTION) {
      value->nvmlReturn = NVML_SUCCESS;
      value->value.ui = at.gpu->recovery;
    } else
      value->nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
  }
  return NVML_SUCCESS;
}

static nvmlReturn_t linked(struct machine *machine, nvmlDevice_t device, unsigned int link,
                           struct target *at) {
  TRY(resolve_device(machine, device, at));
  REQUIRE(at->kind == DEVICE && at->gpu->link_count, NVML_ERROR_NOT_SUPPORTED);
  REQUIRE(link < LINKS, NVML_ERROR_INVALID_ARGUMENT);
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link,
                                             unsigned int *active) {
  READ(machine);
  struct target at;
  TRY(linked(machine, device, link, &at));
  REQUIRE(active, NVML_ERROR_INVALID_ARGUMENT);
  *active = link < at.gpu->link_count;
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link,
                                                        nvmlPciInfo_t *pci) {
  READ(machine);
  struct target at;
  TRY(linked(machine, device, link, &at));
  REQUIRE(pci && link < at.gpu->link_count, NVML_ERROR_INVALID_ARGUMENT);
  uint32_t other = at.gpu->links[link];
  *pci = (nvmlPciInfo_t){0};
  if (other < machine->gpu_count) fill_pci(pci, &machine->gpus[other]);  // or no GPU of this machine
  return NVML_SUCCESS;
}

EXPORT nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link,
                                                        unsigned int *type) {
  READ(machine);
  struct target at;
  TRY(linked(machine, device, link, &at));
  REQUIRE(type && link < at.gpu->link_count, NVML_ERROR_INVALID_ARGUMENT);
  *type = NVML_NVLINK_DEVICE_TYPE_GPU;
  return NVML_SUCCESS;
}
