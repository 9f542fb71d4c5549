"""One request against classes of nodes: whether they take it, and if not, why. Each judged once."""

from functools import cache, partial
from typing import Final

from allocator.config.settings import Prefer
from allocator.extender.equivalence import GpuClass, GpuGroup, GpuGroups, NodeClass
from allocator.extender.reasons import (
    CLOSED,
    CLOSENESS,
    CLOSEST,
    LASTING,
    NO_INVENTORY,
    TOO_FEW,
    FailureReason,
)
from allocator.families.registry import modes_of
from allocator.model.decision import Reason
from allocator.model.demand import Demand
from allocator.model.request import ContainerRequest, Mode, PodRequest
from allocator.placement.candidates import exclusion
from allocator.placement.choose import PlacementPolicy
from allocator.placement.fit import peak, shortfall
from allocator.placement.fleet import Shape, is_mixed, offers_of
from allocator.placement.mig import MigOptions
from allocator.placement.refusals import unservable_findings
from allocator.placement.search import PlanSearch, best, places

MOST_SEARCHES: Final = 32  # per question, some milliseconds each; beyond, the bind decides
MOST_FILTERS: Final = 16  # that are cached; a burst has few kinds of pods
MOST_REUSES: Final = 256  # of one filter, which keeps every class that it has judged alive


class ClassFilter:
    """Judges classes of nodes for one request, each once.

    ``peak_count`` is the largest number of GPUs that the request holds at one time. ``reuses``
    counts :meth:`try_reuse`. ``gave_up_search`` says that an answer was given without a search.
    For several containers that compete for GPUs the search is bounded; in doubt a class fits.
    """

    def __init__(
        self,
        request: PodRequest,
        policy: PlacementPolicy,
        demand: Demand,
        *,
        unknown: FailureReason | None = None,
    ) -> None:
        """Judge by *policy* and *demand*; *unknown* is the answer for nodes without a class."""
        container_requests = request.containers
        self.reuses, self.gave_up_search = 0, False
        self.request, self._policy, self._demand = request, policy, demand
        self._modes = modes_of(request)
        self._mig_options = MigOptions(
            demand=demand, geometries=policy.geometries, named=request.profile
        )
        self._unknown = unknown
        self._searches_left = MOST_SEARCHES
        self._counts = [container_request.count for container_request in container_requests]
        self.peak_count = peak(container_requests, self._counts)
        # How close a GPU comes to each container; ``None`` takes it.
        self._closeness = [
            cache(partial(self._gpu_closeness, container_request))
            for container_request in container_requests
        ]
        self._lasting = cache(self._lasting_reason)
        self.takes_at_first_glance = cache(self._takes_at_first_glance)
        self.failure_reason = cache(self._judge)

    def try_reuse(
        self,
        request: PodRequest,
        policy: PlacementPolicy,
        demand: Demand,
        *,
        unknown: FailureReason | None,
    ) -> bool:
        """Say whether this filter answers the given question, too, and prepare it for that."""
        same = self._demand is demand and self._unknown is unknown
        if not same or self.gave_up_search or self.reuses >= MOST_REUSES:
            return False
        if self.request != request or self._policy != policy:
            return False
        self.reuses += 1
        self._searches_left = MOST_SEARCHES
        return True

    def _takes_at_first_glance(self, group: GpuGroup | None) -> bool:
        """Say whether this group alone has a GPU for each container, so that its node fits."""
        if group is None or group.count < self.peak_count:
            return False
        return all(closeness(group.gpu_class) is None for closeness in self._closeness)

    def _judge(self, node_class: NodeClass | None) -> FailureReason | None:
        """Return why the class does not take the pod, ``None`` where it does."""
        if node_class is None:
            return self._unknown
        if node_class.closed:
            return CLOSED
        for mode in self._modes:
            groups = node_class.mig_groups if mode is Mode.MIG else node_class.shared_groups
            if groups and self._fits(node_class, groups, mode):
                return None
        return self._explain(node_class)

    def _fits(self, node_class: NodeClass, groups: GpuGroups, mode: Mode) -> bool:
        for closeness, count in zip(self._closeness, self._counts, strict=True):
            if sum([r.count for r in groups if closeness(r.gpu_class) is None]) < count:
                return False
        if len(self._counts) == 1:
            return True
        # A GPU for each at any time is enough; else they share some, which has to be tried.
        for_any = [r.count for r in groups if all(c(r.gpu_class) is None for c in self._closeness)]
        return sum(for_any) >= self.peak_count or self._can_place(node_class, mode)

    def _can_place(self, node_class: NodeClass, mode: Mode) -> bool:
        """Say whether a search finds room for all containers; true once searches are used up."""
        if not self._searches_left:
            self.gave_up_search = True
            return True
        self._searches_left -= 1
        nodes_by_mode = {mode: places((node_class.node,), self.request, mode)}
        search = PlanSearch(places=nodes_by_mode, mig_options=self._mig_options, prefer=Prefer.COST)
        return best(search, self.request) is not None

    def _gpu_closeness(
        self, container_request: ContainerRequest, gpu_class: GpuClass
    ) -> int | None:
        headroom = gpu_class.headroom
        excluded = exclusion(headroom.gpu, self.request, self._modes)
        if excluded is not None:
            reason = excluded[0]
        elif headroom.gpu.mode is Mode.MIG:
            reason = (
                None if self._mig_options.takes(container_request, headroom) else Reason.NO_GEOMETRY
            )
        else:
            reason = shortfall(container_request, headroom).reason
        return None if reason is None else CLOSENESS[reason]

    def _lasting_reason(self, shape: Shape) -> Reason | None:
        """Return why GPUs of this *shape* do not take the pod even when they are empty."""
        findings = unservable_findings(self.request, offers_of((shape,)), mixed=is_mixed(shape))
        return findings[0].reason if findings else None

    def _explain(self, node_class: NodeClass) -> FailureReason:
        if not node_class.shape:
            return NO_INVENTORY
        if node_class.fresh:
            reason = self._lasting(node_class.shape)
            if reason is None and self._lasting(node_class.healthy_shape) is not None:
                reason = Reason.UNHEALTHY
            if reason is not None:
                return LASTING[reason]
        reached = [
            closeness(group.gpu_class)
            for group in (*node_class.mig_groups, *node_class.shared_groups)
            for closeness in self._closeness
        ]
        closest = max([one for one in reached if one is not None], default=None)
        return TOO_FEW if closest is None else CLOSEST[closest]


class ClassFilterCache:
    """The filters of the last requests: pods of a burst have equal requests."""

    def __init__(self) -> None:
        """Begin empty."""
        self._filters: list[ClassFilter] = []  # the one used last at the end

    def filter_for(
        self,
        request: PodRequest,
        policy: PlacementPolicy,
        demand: Demand,
        *,
        unknown: FailureReason | None = None,
    ) -> ClassFilter:
        """Return a filter for these arguments; see :class:`ClassFilter`."""
        for number in range(len(self._filters) - 1, -1, -1):
            if self._filters[number].try_reuse(request, policy, demand, unknown=unknown):
                class_filter = self._filters.pop(number)
                break
        else:
            class_filter = ClassFilter(request, policy, demand, unknown=unknown)
        self._filters.append(class_filter)
        del self._filters[:-MOST_FILTERS]
        return class_filter
